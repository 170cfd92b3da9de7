"""Stability: the root condition at z = 0, the intervals of stability on the axes, and the region as a grid."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import sympy

from stepnet.analysis.amplification import amplification
from stepnet.analysis.locus import between, bounded, critical_values, mirror
from stepnet.analysis.symbols import subject, z, zeta
from stepnet.errors import UserError
from stepnet.schemes import Scheme

_x = sympy.Symbol("x", real=True)


class Region(NamedTuple):
    """A grid of `z = re + i im` and the largest growth factor there: stable where `radius <= 1`."""

    re: Any
    im: Any
    radius: Any


def zero_stable(scheme: str | Scheme) -> Any:
    """The root condition for dt -> 0: True or False, or with a symbol k the set of k for which it holds.

    Roots lie in the closed unit disc, and on the circle they are simple; for an equation of order m they may be
    m-fold there (Henrici), which is why a double root at 1 is no fault of `leapfrog`. The parts of a partitioned
    system do not see each other at z = 0, so each is allowed that much.
    """
    method = subject(scheme)
    q = amplification(method).as_expr().subs(z, 0)
    allowed = method.equation.derivative * (2 if method.equation.partitioned else 1)
    k = _parameter(q)
    if k is None:
        return bounded(q, allowed)
    values = critical_values(q, k)
    samples = between(values)
    ends = zip([-sympy.oo, *values], [*values, sympy.oo], strict=True)
    cells: list[Any] = [sympy.Interval.open(low, high) for low, high in ends]
    held = [cell for cell, sample in zip(cells, samples, strict=True) if bounded(q.subs(k, sample), allowed)]
    held += [sympy.FiniteSet(value) for value in values if bounded(q.subs(k, value), allowed)]
    return sympy.Union(*held)


def stability_interval(scheme: str | Scheme) -> Any:
    """The largest x with `-x < z < 0` stable: an exact number; `oo` when the whole negative axis is.

    2 for `euler`; `2 - 2 k` for `lm` with a symbolic k, which holds where it is zero-stable (`Piecewise` where a closed
    end of that set differs from its inside). Single points, where roots on the circle happen to meet, are not
    counted: whether an end belongs to the interval is what `stable` tells.
    """
    return _limit(subject(scheme), -1)


def imaginary_limit(scheme: str | Scheme) -> Any:
    """The largest y with `z = i s` stable for all `0 < s < y`: what a pure oscillation allows."""
    return _limit(subject(scheme), sympy.I)


def stable(scheme: str | Scheme, at: Any) -> bool:
    """The root condition at one `z`, exactly; with a symbol k (which `at` may contain), for almost every k.

    Leapfrog is stable to 4 but not at 4, where the root -1 is double and a run grows linearly.
    """
    if at == 0:
        return bool(_samples(zero_stable(scheme)))
    polynomial = amplification(subject(scheme))
    q = sympy.expand(polynomial.as_expr().subs(z, at))
    if sympy.degree(q, zeta) < polynomial.degree(zeta):  # a root at infinity: backward Euler at z = 1
        return False
    k = _parameter(q)
    return bounded(q) if k is None else all(bounded(q.subs(k, value)) for value in _samples(zero_stable(scheme)))


def stability_region(
    scheme: str | Scheme, extent: tuple[float, float, float, float] = (-4.0, 1.0, -3.5, 3.5), n: int = 201
) -> Region:
    """The largest |root| on an n by n grid over `extent = (left, right, bottom, top)`, for plotting."""
    if n < 2:
        raise UserError(f"n = {n}: a grid needs at least 2 points a side")
    re, im = np.meshgrid(np.linspace(*extent[:2], n), np.linspace(*extent[2:], n))
    return Region(re, im, growth(scheme, re + 1j * im))


def growth(scheme: str | Scheme, values: Any) -> Any:
    """The largest |root| of the amplification polynomial at each z: the asymptotic growth factor of one step."""
    method = subject(scheme)
    polynomial = sympy.Poly(amplification(method).as_expr(), zeta)
    symbol = _parameter(polynomial.as_expr())
    if symbol is not None:
        raise UserError(f"scheme {method.name!r} has a {symbol}: give a number, as in get_scheme('lm', k=-0.5)")
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


def _parameter(q: sympy.Expr) -> Any:
    """The symbol, such as k, that was left in the coefficients, or None."""
    symbols = sorted(q.free_symbols - {zeta, z, _x}, key=str)
    if len(symbols) > 1:
        raise UserError(f"the symbols {', '.join(map(str, symbols))} in one scheme: give numbers for all but one")
    return symbols[0] if symbols else None


def _limit(method: Scheme, direction: Any) -> Any:
    q = sympy.expand(amplification(method).as_expr().subs(z, direction * _x))
    return _first_exit(q) if _parameter(q) is None else _symbolic_limit(method, q)


def _first_exit(q: sympy.Expr) -> Any:
    values = [value for value in critical_values(q, _x) if value > 0]
    for low, sample in zip([sympy.Integer(0), *values], between([sympy.Integer(0), *values])[1:], strict=True):
        if not bounded(q.subs(_x, sample)):
            return low
    return sympy.oo


def _symbolic_limit(method: Scheme, q: sympy.Expr) -> Any:
    """The formula in k, among the roots of the same conditions, that gives the exact limit at every sampled k."""
    k, domain = _parameter(q), _as_set(zero_stable(method))
    samples = _samples(domain)
    if not samples:
        raise UserError(f"{method.name} is zero-stable for no interval of {k}: give a number for {k}")
    limits = [_first_exit(q.subs(k, value)) for value in samples]
    formulas: list[Any] = [sympy.Integer(0), sympy.oo]
    for root in (1, -1):
        formulas += sympy.solve(q.subs(zeta, root), _x)
    curve = sympy.resultant(q, mirror(q, _x), zeta)
    formulas += [] if curve.equals(0) else sympy.solve(curve, _x)
    for formula in formulas:
        if all(_equal(formula.subs(k, value), limit) for value, limit in zip(samples, limits, strict=True)):
            ends = {end: _first_exit(q.subs(k, end)) for end in domain.boundary if end in domain}
            other = [
                (limit, sympy.Eq(k, end)) for end, limit in ends.items() if not _equal(formula.subs(k, end), limit)
            ]
            return sympy.Piecewise(*other, (sympy.simplify(formula), True))
    raise UserError(f"the interval of {method.name} is not one formula in {k}: give a number for {k}")


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b or sympy.simplify(a - b) == 0)


def _samples(domain: Any) -> list[Any]:
    """Five rationals inside each interval of a set of k."""
    domain = _as_set(domain)
    samples = []
    for piece in domain.args if isinstance(domain, sympy.Union) else (domain,):
        if piece.is_Interval:
            low, high = max(piece.start, min(piece.end, 2) - 4), min(piece.end, max(piece.start, -2) + 4)
            inside = [low + (high - low) * sympy.Rational(j, 11) for j in (1, 2, 5, 7, 10)]
            samples += [sympy.Rational(str(sympy.N(value, 8))) for value in inside]
    return samples


def _as_set(domain: Any) -> Any:
    """What `zero_stable` says, as a set of k also where it does not depend on k."""
    return {True: sympy.S.Reals, False: sympy.S.EmptySet}[domain] if isinstance(domain, bool) else domain
