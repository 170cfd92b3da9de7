"""docs/benchmarks.md says what results/benchmarks.json says."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_page_is_what_its_command_makes() -> None:
    made = runpy.run_path(str(ROOT / "benchmarks" / "page.py"))["page"]()
    assert (ROOT / "docs" / "benchmarks.md").read_text() == made, "run python benchmarks/page.py"
    assert made.count("\n| ") > 5
