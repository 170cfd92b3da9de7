"""docs/results.md says what the files in results/ say, and its verdicts follow the protocol."""

import runpy
from pathlib import Path

import pytest

from stepnet.training.paired import PairedDifferences

ROOT = Path(__file__).parent.parent
MADE = runpy.run_path(str(ROOT / "results" / "page.py"))


def test_the_page_is_what_its_command_makes() -> None:
    assert (ROOT / "docs" / "results.md").read_text() == MADE["page"](), "run python results/page.py"


@pytest.mark.parametrize(
    ("gaps", "effect", "expected"),
    [
        ((-1.0, -1.1, -0.9), None, "holds"),
        ((1.0, 1.1, 0.9), None, "does not hold"),
        ((-0.1, 0.0, 0.1), -0.42, "does not hold"),  # the interval excludes the paper's effect
        ((-1.0, 1.0, 0.0), -0.42, "cannot be told"),
        ((-1.0,), None, "cannot be told"),
    ],
)
def test_verdicts(gaps: tuple[float, ...], effect: float | None, expected: str) -> None:
    assert MADE["verdict"](PairedDifferences(dict(enumerate(gaps))), effect) == expected
