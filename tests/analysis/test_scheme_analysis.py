"""One object answers for a scheme, and computes each fact once."""

import pytest
import sympy

import stepnet
from stepnet import analysis, get_scheme
from stepnet.analysis import scheme_analysis
from stepnet.schemes import Equation


def test_each_fact_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of `print(analyse("rk4"))`, twice, and every question after it, from one run of the scheme on symbols."""
    calls = []
    for name in ("companion_matrix", "characteristic_polynomial", "root_condition", "step_lines", "modified"):
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
    for question in ("order", "amplification", "companion", "zero_stable", "stability_interval", "imaginary_limit"):
        assert getattr(analysis, question)(name) == getattr(found, question)
    assert analysis.modified_equation(name, terms=3) == found.modified_equation(3)
    assert analysis.between_states(name) == found.between_states


def test_one_k_or_every_k() -> None:
    assert stepnet.analyse("lm").stability_interval.subs(sympy.Symbol("k", real=True), sympy.Rational(-1, 2)) == 3
    assert stepnet.analyse("lm", k=-0.5).stability_interval == 3
    assert stepnet.analyse(get_scheme("lm", k=-0.5)).stability_interval == 3
    assert stepnet.analyse("lm").order_against(Equation()) == 0
