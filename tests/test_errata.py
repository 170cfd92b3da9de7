"""docs/errata.md names the test that shows each point: the test must exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "errata.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)


@pytest.mark.parametrize(("path", "test"), NAMED)
def test_the_test_that_the_page_names_exists(path, test):
    tree = ast.parse((ROOT / path).read_text())
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert not test or test in defined


@pytest.mark.parametrize(("heading", "least"), [("Numerics", 13), ("What the released code does otherwise", 4)])
def test_every_point_has_its_test(heading, least):
    section = PAGE.split(f"## {heading}")[1].split("\n## ")[0]
    points = re.split(r"\n- ", section)[1:]
    assert len(points) >= least
    assert all("::test_" in point for point in points)
