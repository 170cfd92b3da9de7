"""The table of residual connections: matrices that are typed here, against those that analysis finds."""

from __future__ import annotations

import json

import pytest

from stepnet.cli import main
from stepnet.report.residual_connections import general_linear_table


def test_the_matrices_are_those_of_the_literature() -> None:
    rows = {row.scheme: row for row in general_linear_table()}
    found = {name: (row.U, row.V, row.B) for name, row in rows.items()}
    assert found == {
        "euler": ("1", "1", "1"),
        "lm": ("(1, 0)", "[[1 - k, k], [1, 0]]", "(1, 0)"),
        "multistep": ("(1 - b, b)", "[[1 - a, a], [1, 0]]", "(1, 0)"),
        "x0": ("(r, x)", "[[r, x], [0, 1]]", "(1, 0)"),
        "momentum": ("(1, 0)", "[[1, b], [0, b]]", "(1, 1)"),
        "nesterov": ("(1, b)", "[[1, b], [0, b]]", "(1, 1)"),
        "dense": ("(1 - a, a)", "[[1 - a, a], [1, 0]]", "(1, 0)"),
        "hyper": ("(U1, U2)", "[[V11, V12], [V21, V22]]", "(B1, B2)"),
        "mhc": ("(1, 0)", "[[1 - p, p], [p, 1 - p]]", "(1, 1)"),
    }
    assert rows["lm"].zero_stable == "for -1 < k <= 1" and rows["lm"].equation == "(1 + k) u' = f"
    assert rows["momentum"].zero_stable == "for -1 <= b < 1" and rows["momentum"].equation == "(1 - b) u' = f"
    assert rows["mhc"].zero_stable == "for 0 <= p <= 1" and rows["hyper"].parameters.startswith("8")


def test_the_commands_print_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "residual", "--json"]) == 0
    assert [row["scheme"] for row in json.loads(capsys.readouterr().out)][:2] == ["euler", "lm"]
    assert main(["scheme", "mhc", "--streams", "3"]) == 0
    assert "u3_{n+1} = u3_n + dt f(u1_n)" in capsys.readouterr().out
    assert main(["scheme", "lm", "--streams", "3"]) == 2
