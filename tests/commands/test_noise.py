"""`stepnet noise`: what it prints, and that it fits."""

import json
import re

import pytest

from stepnet.cli import main


def shown(capsys, *arguments):
    assert main(["noise", *arguments, "--samples", "20000"]) == 0
    return capsys.readouterr().out


def orders(text, label=""):
    """The slopes under a label: exact at small steps, exact at large ones, and measured there with their intervals."""
    rows = text.split("by symbols")[1].split(f"\n  {label:<12}1/dt ", 1)[1].splitlines()[:3]
    slopes = [[float(cell.split(" ±")[0]) for cell in re.findall(r"\d\.\d{3}(?: ± \d\.\d{3})?", row)] for row in rows]
    return *slopes, [float(width) for width in re.findall(r"± (\S+)", rows[2])]


def test_stochastic_depth_tells_its_equation_its_condition_and_what_happens_without_it(capsys):
    text = shown(capsys, "stochastic_depth")
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
    text = shown(capsys, "stochastic_depth", "--p", "0.5")
    assert "dX = 1/2 f dt + 1/2 f dB" in text
    assert "              holds\n" in text


def test_shake_shake(capsys):
    text = shown(capsys, "shake_shake")
    assert "dX = (f1 + f2)/2 dt + sqrt(3) (f1 - f2)/6 dB" in text
    exact, large, measured, widths = orders(text)
    assert exact == pytest.approx([1, 1, 1], abs=0.01)
    assert all(abs(slope - 1) + width < 0.2 for slope, width in zip(measured, widths, strict=True))
    assert all(abs(a - b) < 2 * width for a, b, width in zip(measured, large, widths, strict=True))


def test_alone_it_lists_the_noises(capsys):
    text = shown(capsys)
    assert [line.split()[0] for line in text.splitlines()] == [
        "stochastic_depth",
        "shake_shake",
        "rademacher",
        "gaussian",
        "additive",
    ]


def test_json(capsys):
    assert json.loads(shown(capsys, "--json"))[0]["noise"] == "stochastic_depth"
    found = json.loads(shown(capsys, "stochastic_depth", "--p", "0.5", "--json"))
    assert found["equation"] == "dX = 1/2 f dt + 1/2 f dB" and found["holds"] is True
    assert found["weak_orders"] == {"E X": 1, "E X^2": 1, "E X^3": 1}  # numbers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["noise", "stochastic_depth", "--p", "1.5"], "p = 1.5: expected 0 < p < 1"),
        (["noise", "stochastic-depth"], "unknown noise 'stochastic-depth': did you mean 'stochastic_depth'"),
        (["noise", "shakeshake", "--p", "0.5"], "did you mean 'shake_shake'"),
        (["noise", "shake_shake", "--p", "0.5"], "takes no option 'p'"),
        (["noise", "--p", "0.5"], "a flag needs a noise"),
        (["scheme", "stochastic_depth"], "stochastic_depth is a noise, not a scheme: stepnet noise stochastic_depth"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
