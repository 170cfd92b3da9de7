"""Truncated power series with symbolic coefficients, as lists: what shift operators `e^(m D)` expand into.

sympy's own `series` expands step by step from derivatives; these three recurrences give the same coefficients at once.
"""

from __future__ import annotations

import sympy

Coefficients = list[sympy.Expr]


def of_shifts(weights: dict[int, sympy.Expr], length: int) -> Coefficients:
    """`sum_m w_m e^(m D)` in powers of D: the coefficient of D^n is `sum_m w_m m^n / n!`."""
    return [
        sympy.expand(sum(w * sympy.Integer(m) ** n for m, w in weights.items())) / sympy.factorial(n)
        for n in range(length)
    ]


def divide(a: Coefficients, b: Coefficients) -> Coefficients:
    """`a / b`, where b does not vanish at 0."""
    quotient: Coefficients = []
    for n, term in enumerate(a):
        quotient.append(sympy.cancel((term - sum(quotient[j] * b[n - j] for j in range(n))) / b[0]))
    return quotient


def log(a: Coefficients) -> Coefficients:
    """`log a` for `a = 1 + …`: from `a' = a (log a)'`."""
    result: Coefficients = [sympy.Integer(0)]
    for n in range(1, len(a)):
        known = sum((j * result[j] * a[n - j] for j in range(1, n)), sympy.Integer(0))
        result.append(sympy.cancel(a[n] - known / n))
    return result
