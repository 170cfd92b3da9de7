"""docs/security.md names the test that holds each promise: the test must exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


@pytest.mark.parametrize(("path", "test"), NAMED)
def test_the_test_that_the_page_names_exists(path: str, test: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("heading", ["What never happens", "What is bounded", "What is checked"])
def test_every_promise_has_its_test(heading: str) -> None:
    section = PAGE.split(f"## {heading}")[1].split("\n## ")[0]
    promises = re.split(r"\n- ", section)[1:]
    assert len(promises) >= 3
    assert all("::test_" in promise for promise in promises)
