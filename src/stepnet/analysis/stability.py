"""Stability: the root condition at z = 0, the intervals of stability on the axes, and the region as a grid.

Everything follows from the amplification polynomial `p(zeta, z)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import sympy
from numpy.typing import ArrayLike, NDArray

from stepnet.analysis.growth_factors import minimal_polynomial
from stepnet.analysis.locus import between, bounded, critical_values, mirror
from stepnet.analysis.symbols import is_rational, vanishes, z, zeta
from stepnet.errors import UserError

Array: TypeAlias = NDArray[np.float64]
Verdict: TypeAlias = bool | sympy.Set  # whether a condition holds, or the set of k for which it does
_x = sympy.Symbol("x", real=True)


class Region(NamedTuple):
    """A grid of `z = re + i im` and the largest growth factor there: stable where `radius <= 1`."""

    re: Array
    im: Array
    radius: Array


def root_condition(v: sympy.Matrix, allowed: int) -> Verdict:
    """Whether the powers of V are bounded (`allowed = 1`), or grow at most like `n^(allowed - 1)`.

    All roots of its minimal polynomial lie in the closed unit disc, those on the circle at most `allowed`-fold.
    """
    q = minimal_polynomial(v).as_expr()
    k = _parameter(q)
    if k is None:
        return bounded(q, allowed)
    values = critical_values(q, k)
    ends = zip([-sympy.oo, *values], [*values, sympy.oo], strict=True)
    cells = [sympy.Interval.open(low, high) for low, high in ends]
    held = [cell for cell, sample in zip(cells, between(values), strict=True) if bounded(q.subs(k, sample), allowed)]
    for value in values:  # where roots meet, V may have fewer or smaller Jordan blocks
        there = minimal_polynomial(v.subs(k, value)).as_expr() if value.is_Rational else q.subs(k, value)
        held += [sympy.FiniteSet(value)] if bounded(there, allowed) else []
    return sympy.Union(*held)


def axis_limit(polynomial: sympy.Poly, direction: sympy.Expr, zero_stable: Verdict) -> sympy.Expr:
    """Return the largest x with `z = direction s` stable for all `0 < s < x`: an exact number, `oo`, or a formula in k.

    The formula is the root of the same conditions that gives the exact limit at every sampled zero-stable k. It is
    `Piecewise` if a closed end of the zero-stable set differs from its interior. Isolated points, where roots on the
    circle meet, are not counted: `stable_at` says whether an end belongs to the interval.
    """
    q = sympy.expand(polynomial.as_expr().subs(z, direction * _x))
    k = _parameter(q)
    if k is None:
        return _first_exit(q)
    domain = _as_set(zero_stable)
    samples = _samples(domain)
    if not samples:
        raise UserError(f"the scheme is zero-stable for no interval of {k}: give a number for {k}")
    limits = [_first_exit(q.subs(k, value)) for value in samples]
    for formula in _formulas(q):
        if all(_equal(formula.subs(k, value), limit) for value, limit in zip(samples, limits, strict=True)):
            ends = {end: _first_exit(q.subs(k, end)) for end in domain.boundary if end in domain}
            other = [
                (limit, sympy.Eq(k, end)) for end, limit in ends.items() if not _equal(formula.subs(k, end), limit)
            ]
            return sympy.Piecewise(*other, (_short(formula), True))
    raise UserError(f"its interval is not one formula in {k}: give a number for {k}")


def stable_at(polynomial: sympy.Poly, at: sympy.Expr | complex, zero_stable: Verdict) -> bool:
    """Check the root condition at one `z`, exactly; with a symbol k (which `at` may contain), for almost every k.

    Leapfrog is stable up to 4 but not at 4, where the root -1 is double and a run grows linearly.
    """
    if at == 0:
        return bool(_samples(zero_stable))
    q = sympy.expand(polynomial.as_expr().subs(z, at))
    if sympy.degree(q, zeta) < polynomial.degree(zeta):  # a root at infinity: backward Euler at z = 1
        return False
    k = _parameter(q)
    return bounded(q) if k is None else all(bounded(q.subs(k, value)) for value in _samples(zero_stable))


def largest_root(polynomial: sympy.Poly, values: ArrayLike) -> Array:
    """Return the largest |root| of the amplification polynomial at each z: the asymptotic growth factor of one step."""
    in_zeta = sympy.Poly(polynomial.as_expr(), zeta)
    try:
        at = np.asarray(values, dtype=complex)
    except (TypeError, ValueError):
        raise UserError(f"values = {values!r}: expected complex numbers z = lambda dt") from None
    columns = [np.broadcast_to(sympy.lambdify(z, c, "numpy")(at), at.shape) for c in in_zeta.all_coeffs()]
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


def region_on_grid(growth: Callable[[ArrayLike], Array], extent: tuple[float, float, float, float], n: int) -> Region:
    """Return the largest growth factor on an n by n grid over `extent = (left, right, bottom, top)`."""
    re, im = np.meshgrid(np.linspace(*extent[:2], n), np.linspace(*extent[2:], n))
    return Region(re, im, growth(re + 1j * im))


def _parameter(q: sympy.Expr) -> sympy.Symbol | None:
    """Return the symbol in the coefficients, such as k, or None."""
    symbols = sorted(q.free_symbols - {zeta, z, _x}, key=str)
    if len(symbols) > 1:
        raise UserError(f"the symbols {', '.join(map(str, symbols))} in one scheme: give numbers for all but one")
    return symbols[0] if symbols else None


def _first_exit(q: sympy.Expr) -> sympy.Expr:
    values = [value for value in critical_values(q, _x) if value > 0]
    for low, sample in zip([sympy.Integer(0), *values], between([sympy.Integer(0), *values])[1:], strict=True):
        if not bounded(q.subs(_x, sample)):
            return low
    return sympy.oo


def _formulas(q: sympy.Expr) -> Iterator[sympy.Expr]:
    """Yield candidate formulas for the limit: 0, oo, a root at 1 or -1, a pair on the circle."""
    yield from (sympy.Integer(0), sympy.oo)
    for root in (1, -1):
        yield from _roots(q.subs(zeta, root))
    curve = sympy.resultant(q, mirror(q, _x), zeta)
    if not curve.equals(0):
        yield from _roots(curve)


def _roots(condition: sympy.Expr) -> list[sympy.Expr]:
    """Return the roots of factors up to degree 2; formulas of higher degree are unreadable and slow to compare."""
    _, factors = sympy.factor_list(condition, _x)
    simple = [sympy.Poly(factor, _x) for factor, _ in factors if factor.has(_x)]
    return [root for polynomial in simple if polynomial.degree() <= 2 for root in sympy.roots(polynomial)]


def _short(formula: sympy.Expr) -> sympy.Expr:
    return sympy.cancel(formula) if is_rational(formula) else sympy.simplify(formula)


def _equal(a: sympy.Expr, b: sympy.Expr) -> bool:
    return bool(a == b or vanishes(a - b))


def _samples(domain: Verdict) -> list[sympy.Rational]:
    """Return five rationals inside each interval of a set of k."""
    domain = _as_set(domain)
    samples = []
    for piece in domain.args if isinstance(domain, sympy.Union) else (domain,):
        if piece.is_Interval:
            low, high = max(piece.start, min(piece.end, 2) - 4), min(piece.end, max(piece.start, -2) + 4)
            inside = [low + (high - low) * sympy.Rational(j, 11) for j in (1, 2, 5, 7, 10)]
            samples += [sympy.Rational(str(sympy.N(value, 8))) for value in inside]
    return samples


def _as_set(domain: Verdict) -> sympy.Set:
    """Return the set of k; all reals or none if the condition does not depend on k."""
    return {True: sympy.S.Reals, False: sympy.S.EmptySet}[domain] if isinstance(domain, bool) else domain
