"""`stepnet scheme stochastic_depth` and its kind."""

import re

import pytest

from stepnet.cli import main
from stepnet.commands import noise


@pytest.fixture(autouse=True)
def few_samples(monkeypatch):
    monkeypatch.setattr(noise, "SAMPLES", 20_000)


def orders(text, label):
    """The exact slopes of a row, one for each moment, and those measured with their intervals."""
    row = re.search(rf"^  {re.escape(label)} +(\d.*)$", text, re.MULTILINE).group(1)
    exact = [float(slope) for slope in re.findall(r"(\d\.\d+) \(", row)]
    measured = [tuple(map(float, pair)) for pair in re.findall(r"\((\d\.\d+) ± (\d\.\d+)\)", row)]
    return exact, measured


def test_stochastic_depth_tells_its_equation_its_condition_and_what_happens_without_it(capsys):
    assert main(["scheme", "stochastic_depth"]) == 0
    text = capsys.readouterr().out
    assert "dX = p f dt + sqrt(p (1 - p)) f dB" in text
    assert "holds if 1 - 2 p = O(sqrt(dt))" in text
    exact, measured = orders(text, "p = 0.5")
    assert exact == pytest.approx([1, 1, 1], abs=0.01)
    assert all(abs(slope - 1) < 0.2 for slope, _ in measured[:2])
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
    exact, measured = orders(text, "")
    assert exact == pytest.approx([1, 1, 1], abs=0.01)
    assert all(abs(slope - 1) + interval < 0.2 for slope, interval in measured)
    assert len(measured) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["stochastic_depth", "--p", "1.5"], "p = 1.5: expected 0 < p < 1"),
        (["stochastic_depth", "--k", "1"], "stochastic_depth is a noise"),
        (["shake_shake", "--p", "0.5"], "has no parameter p"),
        (["euler", "--p", "0.5"], "scheme 'euler' has no p"),
        (["--p", "0.5"], "need a scheme"),
    ],
)
def test_bad_input(options, message, capsys):
    assert main(["scheme", *options]) == 2
    assert message in capsys.readouterr().err
