"""The table of residual connections: matrices that are typed here, against those that analysis finds."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from functools import cache

import pytest
from sympy.parsing.sympy_parser import parse_expr

from stepnet import create_model
from stepnet.cli import main
from stepnet.report.residual_connections import GeneralLinearRow, general_linear_table


@cache
def rows() -> dict[str, GeneralLinearRow]:
    return {row.scheme: row for row in general_linear_table()}


def test_the_matrices_are_those_of_the_literature() -> None:
    table = rows()
    found = {name: (row.U, row.V, row.B) for name, row in table.items()}
    assert found == {
        "euler": ("1", "1", "1"),
        "parallel": ("(1, 1)", "1", "(1, 1)"),
        "lie_trotter": ("(1, 1)", "1", "(1, 1)"),
        "strang": ("(1, 1, 1)", "1", "(1/2, 1, 1/2)"),
        "lm": ("(1, 0)", "[[1 - k, k], [1, 0]]", "(1, 0)"),
        "multistep": ("(1 - b, b)", "[[1 - a, a], [1, 0]]", "(1, 0)"),
        "x0": ("(r, x)", "[[r, x], [0, 1]]", "(1, 0)"),
        "momentum": ("(1, 0)", "[[1, b], [0, b]]", "(1, 1)"),
        "nesterov": ("(1, b)", "[[1, b], [0, b]]", "(1, 1)"),
        "dense": ("(1 - a, a)", "[[1 - a, a], [1, 0]]", "(1, 0)"),
        "hyper": ("(U1, U2)", "[[V11, V12], [V21, V22]]", "(B1, B2)"),
        "dynamic_hyper": ("(U1, U2)", "[[V11, V12], [V21, V22]]", "(B1, B2)"),
        "mhc": ("(1, 0)", "[[1 - p, p], [p, 1 - p]]", "(1, 1)"),
        "altup": ("(1 - p, p)", "[[1 - p, p], [p, 1 - p]]", "(1, 1)"),
    }
    inside = {name: row.A for name, row in table.items() if row.A != "0"}
    assert inside == {"lie_trotter": "[[0, 0], [1, 0]]", "strang": "[[0, 0, 0], [1/2, 0, 0], [1/2, 1, 0]]"}
    costs = {name: row.cost for name, row in table.items()}
    assert costs["strang"] == "1 f and 2 g, 1 state" and costs["multistep"] == "1 f, 2 states"
    assert {row.order for name, row in table.items() if name in ("parallel", "lie_trotter", "strang")} == {"1"}
    assert table["lm"].zero_stable == "for -1 < k <= 1" and table["lm"].equation == "(1 + k) u' = f"
    assert table["momentum"].zero_stable == "for -1 <= b < 1" and table["momentum"].equation == "(1 - b) u' = f"
    assert table["mhc"].zero_stable == "for 0 <= p <= 1" and table["hyper"].zero_stable == "powers of V bounded"
    assert table["x0"].zero_stable == "for -1 <= r < 1 or r = 1, x = 0"  # Euler, where a new network begins
    assert table["x0"].equation == "none" and table["hyper"].equation == "m u' = f if V q = q, U q = 1"


@pytest.mark.parametrize("name", ["lm", "x0", "momentum", "hyper3", "dynamic_hyper3", "mhc", "altup3"])
def test_the_parameters_are_those_that_a_network_has(name: str) -> None:
    """What a GPT of 3 layers and width 8 has more than Euler's, for each step that owns coefficients."""
    streams = int(name[-1]) if name[-1] == "3" else 2
    text = rows()[name.rstrip("3")].parameters
    euler, network = (
        sum(p.numel() for p in create_model("gpt3x8", scheme=scheme, num_classes=3, heads=1).parameters())
        for scheme in ("euler", name)
    )
    steps = 6 if name not in ("lm", "momentum") else 5  # their first step owns none
    count = parse_expr(text, transformations="all").subs({"s": streams, "d": 8})  # reads `2 s + s^2`
    assert network - euler == steps * count


def test_all_columns_are_printed_in_a_terminal_of_100(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["table", "residual"]) == 0
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 100 and not any("left out" in line for line in lines)
    headings = [word for line in lines if line.startswith("scheme ") for word in line.split()]
    assert [word for word in headings if word != "scheme"] == [
        field.name.replace("_", "-") for field in fields(GeneralLinearRow) if field.name != "scheme"
    ]
    assert sum(line.startswith("dynamic_hyper ") for line in lines) == 3
    assert len(lines) < 70


def test_the_table_for_a_paper(capsys: pytest.CaptureFixture[str]) -> None:
    """In LaTeX's text fonts a bare `<` is another character, and a bare `^` an error."""
    assert main(["table", "residual", "--latex"]) == 0
    text = capsys.readouterr().out
    assert not set("<>^") & set(text) and r"for -1 \textless{} k \textless{}= 1" in text
    assert r"2 s + s\textasciicircum{}2" in text and text.count(r"\begin{tabular}") == 1


def test_the_commands_print_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "residual", "--json"]) == 0
    assert [row["scheme"] for row in json.loads(capsys.readouterr().out)][:2] == ["euler", "parallel"]
    assert main(["scheme", "mhc", "--streams", "3"]) == 0
    assert "u3_{n+1} = u3_n + dt f(u1_n)" in capsys.readouterr().out
    assert main(["scheme", "lm", "--streams", "3"]) == 2
