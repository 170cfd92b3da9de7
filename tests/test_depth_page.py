"""docs/depth.md says what results/depth.jsonl says."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_page_is_made_from_the_records() -> None:
    made = runpy.run_path(str(ROOT / "results" / "depth.py"))
    assert (ROOT / "docs" / "depth.md").read_text() == made["page"](), "run python results/depth.py page"


def test_a_verdict_follows_the_interval() -> None:
    judge = runpy.run_path(str(ROOT / "results" / "depth.py"))["judge"]
    words = ("holds", "does not hold")
    assert [judge(value, 1.0, words) for value in (-1.5, -0.5, 0.5, 1.5)] == [
        "holds",
        "inconclusive",
        "inconclusive",
        "does not hold",
    ]
