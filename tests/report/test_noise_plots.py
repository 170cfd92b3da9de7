"""The picture of a noise."""

from pathlib import Path

import pytest

from report.legibility import flaws
from stepnet.analysis import get_noise, weak_error
from stepnet.cli import main
from stepnet.errors import UserError
from stepnet.report.scheme_plots import EXACT_STEPS, draw_noises


def test_it_shows_exact_errors_and_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr("stepnet.report.scheme_plots.write_figure", lambda figure, path: kept.append(figure))
    draw_noises([get_noise("stochastic_depth", p=0.2), get_noise("shake_shake")], tmp_path / "n.png", samples=2000)
    assert flaws(kept[0]) == []
    left, right = kept[0].axes
    assert left.get_title() == "stochastic_depth, p = 0.2" and right.get_title() == "shake_shake"
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        "$E X$, order 1",
        "$E X^2$, order 1",
        "$E X^3$, order 1/2",
    ]
    curve = next(line for line in left.lines if line.get_label().startswith("$E X^3"))
    wanted = [abs(weak_error("stochastic_depth", n, 3, p=0.2).error) for n in EXACT_STEPS]
    assert curve.get_ydata() == pytest.approx(wanted)
    assert len(right.lines) == 3 + 12  # every interval of shake-shake is clear of 0


def test_the_command_writes_it(tmp_path: Path, capsys) -> None:
    path = tmp_path / "shake.svg"
    assert main(["noise", "shake_shake", "--samples", "2000", "--plot", str(path)]) == 0
    assert path.read_text().lstrip().startswith("<?xml")
    assert f"wrote {path}" in capsys.readouterr().out


def test_bad_suffix(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="suffix"):
        draw_noises([get_noise("shake_shake")], tmp_path / "n.bmpx", samples=2000)
