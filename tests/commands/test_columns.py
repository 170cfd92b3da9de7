"""Rows in aligned columns: for a pipe, for a terminal, for a narrow one."""

from __future__ import annotations

import re

import pytest

from stepnet.commands.columns import RIGHT, latex_table, print_table

HEADINGS = ["name", "family", RIGHT + "parameters"]
ROWS = [["lm_resnet20", "lm_resnet", "269,728"], ["resnet1202", "resnet", "19,421,274"]]


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in capsys.readouterr().out.splitlines()]


def test_piped_every_row_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    print_table(HEADINGS, ROWS, "Title", spare=("family",))
    assert lines(capsys) == [
        "Title",
        "name         family     parameters",
        "lm_resnet20  lm_resnet     269,728",
        "resnet1202   resnet     19,421,274",
    ]


@pytest.mark.parametrize(("width", "shown"), [(34, True), (33, False)])
def test_a_narrow_terminal_is_spared_columns_and_told_which(
    width: int, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(HEADINGS, ROWS, spare=("family", "name"))
    heading, rule, first, *rest = lines(capsys)
    assert heading.split() == (["name", "family", "parameters"] if shown else ["name", "parameters"])
    assert set(rule) == {"─"} and len(rule) <= width
    assert first.split() == [word for word in ROWS[0] if shown or word != "lm_resnet"]
    assert len(rest) == (1 if shown else 3)  # the note takes two lines of 33 characters
    assert shown or " ".join(rest[1:]).endswith("terminal: family")


def test_a_table_for_a_paper() -> None:
    rows = [["lm_resnet20", "8.33 ± 0.12"], ["50% & more", "1"]]
    assert (
        latex_table(["model", ">error"], rows, "on digits")
        == r"""% on digits
\begin{tabular}{lr}
  \toprule
  model & error \\
  \midrule
  lm\_resnet20 & 8.33 $\pm$ 0.12 \\
  50\% \& more & 1 \\
  \bottomrule
\end{tabular}"""
    )
