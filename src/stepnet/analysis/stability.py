"""Stability: the root condition at z = 0, the intervals of stability on the axes, and the region as a grid."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import sympy

from stepnet.analysis.amplification import amplification
from stepnet.analysis.locus import between, bounded, critical_values, mirror
from stepnet.analysis.symbols import is_symbolic, k, subject, z, zeta
from stepnet.errors import UserError
from stepnet.schemes import Scheme

_x = sympy.Symbol("x", real=True)


class Region(NamedTuple):
    """A grid of `z = re + i im` and the largest growth factor there: stable where `radius <= 1`."""

    re: Any
    im: Any
    radius: Any


def zero_stable(scheme: str | Scheme) -> Any:
    """The root condition for dt -> 0: True or False, or for a symbolic k the set of k for which it holds.

    Roots lie in the closed unit disc, and on the circle they are simple; for an equation of order m they may be
    m-fold there (Henrici), which is why a double root at 1 is no fault of `leapfrog`. The parts of a partitioned
    system do not see each other at z = 0, so each is allowed that much.
    """
    method = subject(scheme)
    q = amplification(method).as_expr().subs(z, 0)
    allowed = method.equation.derivative * (2 if method.equation.partitioned else 1)
    if not is_symbolic(method):
        return bounded(q, allowed)
    values = critical_values(q, k)
    samples = between(values)
    ends = zip([-sympy.oo, *values], [*values, sympy.oo], strict=True)
    cells: list[Any] = [sympy.Interval.open(low, high) for low, high in ends]
    held = [cell for cell, sample in zip(cells, samples, strict=True) if bounded(q.subs(k, sample), allowed)]
    held += [sympy.FiniteSet(value) for value in values if bounded(q.subs(k, value), allowed)]
    return sympy.Union(*held)


def stability_interval(scheme: str | Scheme) -> Any:
    """The largest x with `-x <= z <= 0` stable: an exact number; `oo` when the whole negative axis is.

    2 for `euler`; `2 - 2 k` for `lm` with a symbolic k, which holds where it is zero-stable. Single points
    inside, where roots on the circle happen to meet, are not counted.
    """
    return _limit(subject(scheme), -1)


def imaginary_limit(scheme: str | Scheme) -> Any:
    """The largest y with `z = i s` stable for all `0 <= s <= y`: what a pure oscillation allows."""
    return _limit(subject(scheme), sympy.I)


def stability_region(
    scheme: str | Scheme, extent: tuple[float, float, float, float] = (-4.0, 1.0, -3.5, 3.5), n: int = 201
) -> Region:
    """The largest |root| on an n by n grid over `extent = (left, right, bottom, top)`, for plotting."""
    method = _numeric(scheme)
    if n < 2:
        raise UserError(f"n = {n}: a grid needs at least 2 points a side")
    re, im = np.meshgrid(np.linspace(*extent[:2], n), np.linspace(*extent[2:], n))
    return Region(re, im, growth(method, re + 1j * im))


def growth(scheme: str | Scheme, values: Any) -> Any:
    """The largest |root| of the amplification polynomial at each z: the asymptotic growth factor of one step."""
    polynomial = sympy.Poly(amplification(_numeric(scheme)).as_expr(), zeta)
    at = np.asarray(values, dtype=complex)
    columns = [np.broadcast_to(sympy.lambdify(z, c, "numpy")(at), at.shape) for c in polynomial.all_coeffs()]
    degree = len(columns) - 1
    matrix = np.zeros((*at.shape, degree, degree), dtype=complex)
    with np.errstate(divide="ignore", invalid="ignore"):
        for j, column in enumerate(columns[1:]):
            matrix[..., 0, j] = -column / columns[0]
    matrix[..., range(1, degree), range(degree - 1)] = 1
    pole = ~np.isfinite(matrix).all(axis=(-2, -1))  # a leading coefficient of 0: a root at infinity
    matrix[pole] = 0
    radius = np.abs(np.linalg.eigvals(matrix)).max(axis=-1)
    return np.where(pole, np.inf, radius)


def _numeric(scheme: str | Scheme) -> Scheme:
    method = subject(scheme)
    if is_symbolic(method):
        raise UserError(f"scheme {method.name!r} has a k: give a number, as in get_scheme({method.name!r}, k=-0.5)")
    return method


def _limit(method: Scheme, direction: Any) -> Any:
    q = sympy.expand(amplification(method).as_expr().subs(z, direction * _x))
    return _symbolic_limit(method, q) if is_symbolic(method) else _first_exit(q)


def _first_exit(q: sympy.Expr) -> Any:
    values = [value for value in critical_values(q, _x) if value > 0]
    for low, sample in zip([sympy.Integer(0), *values], between([sympy.Integer(0), *values])[1:], strict=True):
        if not bounded(q.subs(_x, sample)):
            return low
    return sympy.oo


def _symbolic_limit(method: Scheme, q: sympy.Expr) -> Any:
    """The formula in k, among the roots of the same conditions, that gives the exact limit at every sampled k."""
    domain = zero_stable(method)
    samples = [value for value in _SAMPLES if value in domain]
    if not samples:
        raise UserError(f"{method.name} is zero-stable for no k in (-1, 1): give a number for k")
    limits = [_first_exit(q.subs(k, value)) for value in samples]
    formulas: list[Any] = [sympy.Integer(0), sympy.oo]
    for root in (1, -1):
        formulas += sympy.solve(q.subs(zeta, root), _x)
    curve = sympy.resultant(q, mirror(q, _x), zeta)
    formulas += [] if curve.equals(0) else sympy.solve(curve, _x)
    for formula in formulas:
        values = [sympy.sympify(formula).subs(k, value) for value in samples]
        if all(
            sympy.simplify(value - limit) == 0 or value == limit for value, limit in zip(values, limits, strict=True)
        ):
            return sympy.simplify(formula)
    raise UserError(f"the interval of {method.name} is not one formula in k: give a number for k")


_SAMPLES = [sympy.Rational(j, 7) for j in (-6, -5, -2, 1, 3, 6)]
