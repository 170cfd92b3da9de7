"""docs/errata.md and docs/security.md name the test that shows each point: the test must exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {page: (ROOT / "docs" / f"{page}.md").read_text() for page in ("errata", "security")}
NAMED = [found for page in PAGES.values() for found in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)]


@pytest.mark.parametrize(("path", "test"), NAMED)
def test_the_test_that_the_page_names_exists(path, test):
    tree = ast.parse((ROOT / path).read_text())
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert not test or test in defined


@pytest.mark.parametrize(
    ("page", "heading", "least"),
    [
        ("errata", "Numerics", 14),
        ("errata", "Training", 3),
        ("errata", "What the released code does otherwise", 6),
        ("security", "What never happens", 3),
        ("security", "What is bounded", 3),
        ("security", "What is checked", 3),
    ],
)
def test_every_point_has_its_test(page, heading, least):
    section = PAGES[page].split(f"## {heading}")[1].split("\n## ")[0]
    points = re.split(r"\n- ", section)[1:]
    assert len(points) >= least
    assert all("::test_" in point for point in points)
