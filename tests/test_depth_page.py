"""docs/depth.md says what results/depth.jsonl says."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def made() -> dict:
    return runpy.run_path(str(ROOT / "results" / "depth.py"))


def test_the_page_is_made_from_the_records(made) -> None:
    assert (ROOT / "docs" / "depth.md").read_text() == made["page"](), "run python results/depth.py page"


def test_readme_says_the_same(made) -> None:
    readme = (ROOT / "README.md").read_text()
    for row in made["readme_rows"]():
        assert row in readme
