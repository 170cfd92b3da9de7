"""One object answers for a scheme, and computes each fact once."""

import re
from pathlib import Path

import pytest
import sympy

import stepnet
from stepnet import analysis, get_scheme
from stepnet.analysis import scheme_analysis
from stepnet.schemes import Equation


def test_each_fact_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of `print(analyse("rk4"))`, twice, and every question after it, from one run of the scheme on symbols."""
    calls = []
    for name in ("companion_matrix", "minimal_polynomial", "root_condition", "step_lines", "modified"):
        own = getattr(scheme_analysis, name)
        monkeypatch.setattr(scheme_analysis, name, lambda *given, own=own, name=name: calls.append(name) or own(*given))
    found = stepnet.analyse("rk4")
    assert calls == []  # nothing before it is asked for
    assert str(found) == str(found)
    assert (found.zero_stable, found.stable(-1), found.growth([0.0])[0]) == (True, True, 1)
    found._repr_html_(), found.latex, found.as_dict()
    assert sorted(calls) == sorted(set(calls)) and len(calls) == 5


@pytest.mark.parametrize("name", ["lm", "rk4", "coupled"])
def test_the_functions_ask_the_object(name: str) -> None:
    found = stepnet.analyse(name)
    for question in ("order", "zero_stable", "stability_interval"):
        assert getattr(analysis, question)(name) == getattr(found, question)
    assert analysis.modified_equation(name, terms=3) == found.modified_equation(3)


def test_one_k_or_every_k() -> None:
    assert stepnet.analyse("lm").stability_interval.subs(sympy.Symbol("k", real=True), sympy.Rational(-1, 2)) == 3
    assert stepnet.analyse("lm", k=-0.5).stability_interval == 3
    assert stepnet.analyse(get_scheme("lm", k=-0.5)).stability_interval == 3
    assert stepnet.analyse("lm").order_against(Equation()) == 0


PAGE = Path(__file__).parents[2] / "docs" / "schemes.md"
ROWS = re.findall(r"^\| (`.*) \|$", PAGE.read_text().partition("\n## ")[0], re.MULTILINE)
TABLE = [pytest.param(name, cells, id=name) for names, *cells in (row.split(" | ") for row in ROWS)
         for name in re.findall(r"`(\w+)`", names)]  # fmt: skip


def cell(limit: sympy.Expr) -> str:
    if isinstance(limit, sympy.Piecewise):
        (at, where), (elsewhere, _) = limit.args
        return f"{elsewhere} ({at} at k = {where.rhs})"
    return f"{float(limit):.4g}" if limit.is_number else str(limit).replace("*", " ")


@pytest.mark.parametrize(("name", "cells"), TABLE)
def test_the_table_of_schemes_on_the_page(name: str, cells: list[str]) -> None:
    found = stepnet.analyse(name)
    facts = [str(found.order), str(found.scheme.stages), cell(found.stability_interval), cell(found.imaginary_limit)]
    assert cells == [*facts, "yes" if found.scheme.invertible else "no"]


def test_the_table_has_the_schemes() -> None:
    assert len(TABLE) == 14
