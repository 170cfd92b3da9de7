"""`stepnet scheme stochastic_depth` and its kind."""

import re

import pytest

from stepnet.cli import main
from stepnet.commands import noise


@pytest.fixture(autouse=True)
def few_samples(monkeypatch):
    monkeypatch.setattr(noise, "SAMPLES", 20_000)


def orders(text, label=""):
    """The slopes under a label: exact at small steps, exact at large ones, and measured there with their intervals."""
    rows = text.split("by symbols")[1].split(f"\n  {label:<12}1/dt ", 1)[1].splitlines()[:3]
    slopes = [[float(cell.split(" ±")[0]) for cell in re.findall(r"\d\.\d{3}(?: ± \d\.\d{3})?", row)] for row in rows]
    return *slopes, [float(width) for width in re.findall(r"± (\S+)", rows[2])]


def test_stochastic_depth_tells_its_equation_its_condition_and_what_happens_without_it(capsys):
    assert main(["scheme", "stochastic_depth"]) == 0
    text = capsys.readouterr().out
    assert "dX = p f dt + sqrt(p (1 - p)) f dB" in text
    assert "holds if 1 - 2 p = O(sqrt(dt))" in text
    assert "E X^3       off by a^3 dt^(3/2) p (1 - 2 p) (1 - p) in a step" in text
    assert re.search(r"by symbols +1 +1 +1/2$", text, re.MULTILINE)
    exact, large, measured, _ = orders(text, "p = 0.5")
    assert exact == pytest.approx([1, 1, 1], abs=0.01)
    assert large[:2] == pytest.approx(measured[:2], abs=0.05)
    assert all(abs(slope - 1) < 0.2 for slope in measured[:2])
    assert orders(text, "p = 0.2")[0] == pytest.approx([1, 1, 0.5], abs=0.01)
    assert max(map(len, text.splitlines())) <= 80


def test_a_given_p(capsys):
    assert main(["scheme", "stochastic_depth", "--p", "0.5"]) == 0
    text = capsys.readouterr().out
    assert "dX = 1/2 f dt + 1/2 f dB" in text
    assert "              holds\n" in text


def test_shake_shake(capsys):
    assert main(["scheme", "shake_shake"]) == 0
    text = capsys.readouterr().out
    assert "dX = (f1 + f2)/2 dt + sqrt(3) (f1 - f2)/6 dB" in text
    exact, large, measured, widths = orders(text)
    assert exact == pytest.approx([1, 1, 1], abs=0.01)
    assert all(abs(slope - 1) + width < 0.2 for slope, width in zip(measured, widths, strict=True))
    assert all(abs(a - b) < 2 * width for a, b, width in zip(measured, large, widths, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["stochastic_depth", "--p", "1.5"], "p = 1.5: expected 0 < p < 1"),
        (["stochastic_depth", "--k", "1"], "stochastic_depth is a noise"),
        (["stochastic-depth"], "unknown noise 'stochastic-depth': did you mean 'stochastic_depth'"),
        (["shakeshake", "--p", "0.5"], "did you mean 'shake_shake'"),
        (["shake_shake", "--p", "0.5"], "takes no option 'p'"),
        (["euler", "--p", "0.5"], "scheme 'euler' has no p"),
        (["--p", "0.5"], "need a scheme"),
    ],
)
def test_bad_input(options, message, capsys):
    assert main(["scheme", *options]) == 2
    assert message in capsys.readouterr().err
