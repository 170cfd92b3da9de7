"""Truncated power series, against sympy's own expansion."""

import sympy

from stepnet.analysis.power_series import divide, log, of_shifts

D, r = sympy.Symbol("D"), sympy.Rational(1, 3)
WEIGHTS = {1: (1 + r) / 2, 0: r**2, -1: (1 - r) / 2 - r**2}


def expanded(expression, length=4):
    series = sympy.series(expression, D, 0, length).removeO()
    return [sympy.simplify(series.coeff(D, n)) for n in range(length)]


def agree(found, wanted):
    return all(sympy.simplify(a - b) == 0 for a, b in zip(found, wanted, strict=True))


def test_shifts_quotients_and_logarithms():
    symbol = sum(w * sympy.exp(m * D) for m, w in WEIGHTS.items())
    series = of_shifts(WEIGHTS, 4)
    assert agree(series, expanded(symbol))
    assert agree(log(series), expanded(sympy.log(symbol)))
    below = of_shifts({2: 3, 0: -1}, 4)
    assert agree(divide(series, below), expanded(symbol / (3 * sympy.exp(2 * D) - 1)))
