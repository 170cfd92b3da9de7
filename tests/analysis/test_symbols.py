"""How a scheme is brought to exact coefficients."""

from fractions import Fraction

import pytest
import sympy
import torch

from stepnet import UserError, get_scheme
from stepnet.analysis.symbols import exact, is_symbolic, k, subject


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
    assert subject("lm").k == k and is_symbolic("lm") and not is_symbolic(get_scheme("lm", k=-0.5))
    scheme = get_scheme("lm", k=0.25)
    assert subject(scheme).k == Fraction(1, 4) and scheme.k == 0.25  # the scheme itself is left alone
    assert subject("rk4").k is None


def test_a_k_for_each_channel_is_refused():
    with pytest.raises(UserError, match=r"shape \(3,\)"):
        subject(get_scheme("lm", k=torch.zeros(3)))
