"""Truncated power series with symbolic coefficients, as lists: the expansions of shift operators `e^(m D)`.

sympy's `series` expands term by term from derivatives; these three recurrences give the same coefficients faster.
"""

from __future__ import annotations

import sympy

PowerSeries = list[sympy.Expr]


def of_shifts(weights: dict[int, sympy.Expr], length: int) -> PowerSeries:
    """`sum_m w_m e^(m D)` in powers of D: the coefficient of D^n is `sum_m w_m m^n / n!`."""
    return [
        sympy.expand(sum(w * sympy.Integer(m) ** n for m, w in weights.items())) / sympy.factorial(n)
        for n in range(length)
    ]


def divide(a: PowerSeries, b: PowerSeries) -> PowerSeries:
    """`a / b`, where b does not vanish at 0."""
    quotient: PowerSeries = []
    for n, term in enumerate(a):
        quotient.append(sympy.cancel((term - sum(quotient[j] * b[n - j] for j in range(n))) / b[0]))
    return quotient


def log(a: PowerSeries) -> PowerSeries:
    """`log a` for `a = 1 + …`: from `a' = a (log a)'`."""
    result: PowerSeries = [sympy.Integer(0)]
    for n in range(1, len(a)):
        known = sum((j * result[j] * a[n - j] for j in range(1, n)), sympy.Integer(0))
        result.append(sympy.cancel(a[n] - known / n))
    return result
