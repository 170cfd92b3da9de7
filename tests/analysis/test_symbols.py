"""How a scheme is brought to exact coefficients."""

import builtins
from fractions import Fraction

import pytest
import sympy
import torch

from stepnet import UserError, analysis, get_scheme
from stepnet.analysis.symbols import exact, k, subject


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (3, 3),
        (0.1, Fraction(1, 10)),
        (1 / 3, Fraction(1, 3)),
        (5 / 13, Fraction(5, 13)),
        (-0.123456789, Fraction(-123456789, 10**9)),
        (sympy.Rational(2, 7), Fraction(2, 7)),
        (sympy.Float(0.5), Fraction(1, 2)),
        (torch.tensor(-0.5), Fraction(-1, 2)),
        (k, k),
        (sympy.sqrt(2), sympy.sqrt(2)),
    ],
)
def test_a_coefficient_is_the_rational_that_was_meant(given, wanted):
    assert exact(given) == wanted
    assert not isinstance(exact(given), float)


def test_a_name_stands_for_every_k_and_a_scheme_for_its_own():
    assert subject("lm").k == k and subject(get_scheme("lm", k=-0.5)).k == Fraction(-1, 2)
    scheme = get_scheme("lm", k=0.25)
    assert subject(scheme).k == Fraction(1, 4) and scheme.k == 0.25  # the scheme itself is left alone
    assert subject("rk4").k is None


def test_a_k_for_each_channel_is_refused():
    with pytest.raises(UserError, match=r"shape \(3,\)"):
        subject(get_scheme("lm", k=torch.zeros(3)))


CODE = "__import__('builtins').setattr(__import__('builtins'), 'evaluated', True)"


@pytest.mark.parametrize(
    "call",
    [
        lambda: analysis.stochastic_equation("stochastic_depth", damping=CODE),
        lambda: analysis.one_step_error("gaussian", damping=CODE),
        lambda: analysis.weak_error("gaussian", 4, problem=analysis.Problem(damping=CODE), sigma=0.5),
        lambda: analysis.weak_condition("gaussian", sigma=CODE),
        lambda: analysis.get_noise("stochastic_depth", p=CODE),
        lambda: analysis.get_noise("stochastic_depth", p=lambda t: CODE),
        lambda: analysis.modified_transport(analysis.Stencil("mine", {0: CODE, 1: 1})),
        lambda: analysis.order(get_scheme("lm", k=CODE)),
        lambda: analysis.analyse("lm", k=CODE).order,
        lambda: exact(CODE),
        lambda: exact("0.5"),
        lambda: exact(float("inf")),
        lambda: exact(1j),
    ],
)
def test_text_is_never_evaluated(call, monkeypatch):
    monkeypatch.setattr("builtins.evaluated", False, raising=False)
    with pytest.raises(UserError) as refused:
        call()
    assert "\n" not in str(refused.value) and builtins.evaluated is False


def test_a_damping_is_a_number_or_a_symbol():
    g = sympy.Symbol("g", positive=True)
    by_symbol = analysis.stochastic_equation("gaussian", damping=g, sigma=0.5)
    wanted = by_symbol.drift.subs(g, sympy.Rational(1, 2))
    for half in (0.5, Fraction(1, 2), sympy.Rational(1, 2)):
        assert analysis.stochastic_equation("gaussian", damping=half, sigma=0.5).drift == wanted
