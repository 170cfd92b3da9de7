"""The code of docs/schemes.md, run as it stands."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "schemes.md"


def test_the_page_runs():
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    assert names["k"].grad is not None
