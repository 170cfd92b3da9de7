"""`stepnet scheme`: what it prints, and that it fits."""

import json
from pathlib import Path

import pytest
import sympy

from stepnet.cli import main
from stepnet.schemes import list_schemes


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["scheme", *arguments]) == 0
    return capsys.readouterr().out


def test_alone_it_lists_every_scheme(capsys):
    lines = shown(capsys).splitlines()
    listed = [line.split()[0] for line in lines if line]
    assert set(list_schemes()) <= set(listed)
    assert listed.index("euler") < listed.index("picard3") < listed.index("lm") < listed.index("coupled")
    assert any("(1 + k) u' = f" in line and "LM-ResNet" in line for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", list_schemes())
def test_each_fits_into_80_columns(name, capsys):
    text = shown(capsys, name)
    assert max(map(len, text.splitlines())) <= 80
    for fact in ("step", "equation", "order", "zero-stable", "negative axis", "modified equation"):
        assert f"\n  {fact}" in text


def test_lm_for_every_k(capsys):
    text = shown(capsys, "lm")
    assert "u_{n+1} = (1 - k) u_n + k u_{n-1} + dt f(u_n)" in text
    assert "u' = f with the step dt/(1 + k)" in text
    assert "0 against u' = f" in text
    assert "for -1 < k <= 1" in text
    assert "0 <= x <= 2 - 2 k" in text
    assert "imaginary axis     stable nowhere but at 0\n" in text
    assert "at k = 1: stable for dt lambda = i x, 0 <= x < 2\n" in text
    assert "(1 + k) u' + (1 - k) dt/2 u'' = f" in text


def test_lm_at_one_k(capsys):
    text = shown(capsys, "lm", "--k", "-0.5")
    assert "lm, k = -1/2" in text and "0 <= x <= 3" in text and "1/2 u' + 3 dt/4 u'' = f" in text
    text = shown(capsys, "lm", "--k", "-1")
    assert "zero-stable        no" in text and "no equation of first order" in text
    assert "0 < x < 4" in text and "imaginary axis     stable nowhere\n" in text
    assert "u' = f with the step 2 dt\n" in shown(capsys, "lm", "--k", "-0.5")


def test_lm_over_a_scheme_for_linear_f(capsys):
    text = shown(capsys, "lm+neumann2")
    assert "0 against (1 + k) u' = f for nonlinear f\n" in text and " 0 against u' = f\n" in text
    assert "0 against u' = f for nonlinear f\n" in shown(capsys, "neumann2")


def test_an_end_that_is_not_stable_is_left_out(capsys):
    assert "stable for dt^2 lambda = -x, 0 <= x < 4\n" in shown(capsys, "leapfrog")
    assert "stable for dt lambda = i x, 0 <= x < 1\n" in shown(capsys, "midpoint2")
    assert "stable for dt lambda = -x, 0 <= x <= 2\n" in shown(capsys, "euler")


def test_evaluations_at_one_place_are_counted_apart(capsys):
    assert "7 in a step, at 4 places; it reads 1 past state" in shown(capsys, "full_fractal3")
    assert "4 in a step; it reads 1 past state" in shown(capsys, "rk4")


def test_latex(capsys):
    text = shown(capsys, "lm", "--latex")
    assert text.startswith("\\begin{align*}\n") and text.endswith("\\end{align*}\n")
    assert r"u_{n+1} &= (1 - k) u_{n} + k u_{n-1} + \Delta t" in text
    assert r"(1 + k) u' + (1 - k) \frac{\Delta t}{2} u'' &= f" in text


def test_json(capsys):
    found = json.loads(shown(capsys, "lm", "--json"))
    assert found["order"] == 1 and found["stability_interval"] == "2 - 2*k"
    assert sympy.sympify(found["zero_stable"]) == sympy.Interval.Lopen(-1, 1)
    assert found["modified_equation"] == ["(1 + k) u' + (1 - k) dt/2 u'' = f"]
    found = json.loads(shown(capsys, "lm", "--k", "-0.5", "--json"))
    assert (found["k"], found["stability_interval"]) == (-0.5, 3)  # numbers, where there is no symbol


def test_a_picture(capsys, tmp_path: Path):
    path = tmp_path / "lm.svg"
    assert f"wrote {path}" in shown(capsys, "lm", "--k", "-0.5", "--plot", str(path))
    assert path.read_text().lstrip().startswith("<?xml")
    assert [p.name for p in tmp_path.iterdir()] == ["lm.svg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lmm"], "unknown scheme 'lmm': did you mean 'lm'"),
        (["rk4", "--k", "0.5"], "scheme 'rk4' has no k: leave out --k 0.5"),
        (["lm", "--k", "nan"], "lm with k = nan: k must be a finite number"),
        (["lm", "--k", "inf"], "lm with k = inf"),
        (["--k", "0.5"], "need a scheme"),
        (["euler", "--plot", "picture.xyz"], "cannot write 'picture.xyz': the suffix must be one of"),
        (["euler", "--plot", "/dev/null/picture.png"], "cannot write /dev/null/picture.png"),
        (["lm", "--k", "-1", "--plot", "picture.png"], "lm(k=-1) is consistent with (0) u' = f"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["scheme", *arguments]) == 2
    told, error = capsys.readouterr()
    assert told == "" and message in error and error.count("\n") == 1 and error.startswith("stepnet: ")
    assert list(tmp_path.iterdir()) == []


def test_all_schemes_as_json(capsys) -> None:
    assert main(["scheme", "--json"]) == 0
    told = {row["scheme"]: row for row in json.loads(capsys.readouterr().out)}
    assert told["rk4"]["order"] == told["rk4"]["evaluations"] == 4 and told["euler"]["network"].startswith("ResNet")
