"""docs/depth.md says what results/depth.jsonl says."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_tables_are_those_of_the_records() -> None:
    sys.path.insert(0, str(ROOT / "results"))
    made = runpy.run_path(str(ROOT / "results" / "depth.py"))
    page = (ROOT / "docs" / "depth.md").read_text()
    for table in made["summary"]().split("\n\n"):
        assert table in page, "run python results/depth.py page, and put its tables into docs/depth.md"
