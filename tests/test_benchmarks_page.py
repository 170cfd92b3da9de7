"""docs/benchmarks.md says what results/benchmarks.json says."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MADE = runpy.run_path(str(ROOT / "benchmarks" / "page.py"))


def test_the_page_is_what_its_command_makes() -> None:
    made = MADE["page"]()
    assert (ROOT / "docs" / "benchmarks.md").read_text() == made, "run python benchmarks/page.py"
    assert made.count("\n| ") > 5


@pytest.mark.parametrize(
    ("median", "target", "expected"),
    [(1.06, "≤ 1.05", True), (1.05, "≤ 1.05", False), (1.29, "≥ 1.3", True), (0.1, "≤ 0.3 s", False), (9.0, "", False)],
)
def test_what_misses_its_target_is_bold(median: float, target: str, expected: bool) -> None:
    assert MADE["misses"](median, target) == expected
    row = {"value": {"median": median, "lower": 0.0, "upper": 9.0}, "unit": "x", "note": "", "target": target}
    assert MADE["_shown"](row).startswith("**") == expected


def test_the_readme_says_what_a_step_of_lm_costs() -> None:
    rows = MADE["read_sections"]()["LM against plain"]["rows"]
    steps = [row for row in rows if row["what"].startswith("training step, LM / plain")]
    ratios, controls = (sorted(row[which]["median"] for row in steps) for which in ("value", "control"))
    control = f"(A/A control {controls[0]:.2f} to {controls[-1]:.2f})"
    claim = f"a training step of LM costs {ratios[0]:.2f} to {ratios[-1]:.2f} times the plain one's {control}"
    assert claim in (ROOT / "README.md").read_text()
