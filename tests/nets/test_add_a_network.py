"""The worked example of docs/add_a_network.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepnet.nets import list_models, registry

PAGE = Path(__file__).parents[2] / "docs" / "add_a_network.md"


def test_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    exec(compile(code, str(PAGE), "exec"), {"__name__": "page"})
    assert list_models("sepnet*") == ["sepnet11", "sepnet20", "sepnet29"]
