"""Whether the roots of a polynomial lie inside, on or outside the unit circle, as a function of a parameter.

For `q(zeta; x)` the number of roots inside the circle, and the multiplicities on it, change only at finitely many x:
where a root meets its mirror image in the circle (`resultant(q, q*) = 0`, `q*` the conjugate reciprocal of q) or
where two roots meet. These values are algebraic numbers, computed exactly; between two of them one sample decides.
"""

from __future__ import annotations

from itertools import combinations, pairwise

import mpmath
import sympy

from stepnet.analysis.symbols import zeta

_REAL = sympy.Symbol("x", real=True)
DIGITS = 50
ON_CIRCLE = mpmath.mpf(10) ** -20  # far above the rounding of DIGITS digits, far below the distance of distinct roots


def critical_values(q: sympy.Expr, x: sympy.Symbol) -> list[sympy.Expr]:
    """Return the real x, ascending, at which the position of the roots of `q(zeta; x)` can change."""
    conditions = _meetings([q], x)
    if 0 in conditions or sympy.Poly(q, zeta).content().has(x):  # roots that stay on the circle, or coincide for all x
        _, factors = sympy.factor_list(q, zeta, x, extension=True)
        conditions = _meetings([factor for factor, _ in factors if factor.has(zeta)], x)
    values = {value for condition in conditions for value in _real_roots(condition, x)}
    return sorted(values, key=lambda value: sympy.N(value, DIGITS))


def mirror(q: sympy.Expr, x: sympy.Symbol) -> sympy.Expr:
    """`q*(zeta) = zeta^n conj(q)(1/zeta)`: its roots are those of q, mirrored in the unit circle."""
    coefficients = sympy.Poly(q, zeta).all_coeffs()
    real = sympy.Dummy(real=True)
    conjugated = [sympy.conjugate(c.subs(x, real)).subs(real, x) for c in coefficients]
    return sympy.expand(sum(c * zeta**j for j, c in enumerate(conjugated)))


def _meetings(curves: list[sympy.Expr], x: sympy.Symbol) -> list[sympy.Expr]:
    """Return expressions that vanish where two roots meet, or a root meets its mirror image."""
    conditions = [sympy.resultant(a, b, zeta) for a, b in combinations(curves, 2)]
    conditions += [sympy.discriminant(curve, zeta) for curve in curves if sympy.degree(curve, zeta) > 1]
    conditions += [sympy.resultant(curve, mirror(curve, x), zeta) for curve in curves]
    return [sympy.expand(condition) for condition in conditions]


def bounded(q: sympy.Expr, multiplicity: int = 1) -> bool:
    """Check the root condition: all roots in the closed unit disc, those on the circle at most `multiplicity`-fold."""
    polynomial = sympy.Poly(q, zeta)
    rational = polynomial.get_domain() in (sympy.ZZ, sympy.QQ, sympy.ZZ_I, sympy.QQ_I)
    factors = polynomial.sqf_list()[1] if rational else [(polynomial, 1)]
    with_multiplicity = [(root, times) for factor, times in factors for root in roots(factor)]
    for root, _ in with_multiplicity:
        beyond = abs(root) - 1
        # with irrational coefficients, roots count as equal if their digits agree
        meeting = sum(times for other, times in with_multiplicity if abs(other - root) <= ON_CIRCLE)
        if beyond > ON_CIRCLE or (beyond >= -ON_CIRCLE and meeting > multiplicity):
            return False
    return True


def roots(polynomial: sympy.Poly) -> list[mpmath.mpc]:
    """Return the roots to `DIGITS` digits."""
    with mpmath.workdps(DIGITS):
        coefficients = [mpmath.mpmathify(sympy.N(c, DIGITS)) for c in polynomial.all_coeffs()]
        sizes = [mpmath.mag(c) for c in coefficients if c]  # in bits
        extra = 200 + max(sizes) - min(sizes)
        return list(mpmath.polyroots(coefficients, maxsteps=500, extraprec=extra)) if len(coefficients) > 1 else []


def between(values: list[sympy.Expr]) -> list[sympy.Expr]:
    """Return one rational in each open interval between the ascending values, and one on either side of them."""
    if not values:
        return [sympy.Integer(0)]
    near = [sympy.Rational(str(sympy.N(value, DIGITS))) for value in values]
    middles = [_simple((a + b) / 2, (b - a) / 4) for a, b in pairwise(near)]
    return [sympy.floor(near[0]) - 1, *middles, sympy.ceiling(near[-1]) + 1]


def _simple(value: sympy.Rational, tolerance: sympy.Rational) -> sympy.Rational:
    """Return a rational with few digits near `value`, which keeps exact arithmetic fast."""
    denominator = 1
    while abs(sympy.Rational(round(value * denominator), denominator) - value) > tolerance:
        denominator *= 2
    return sympy.Rational(round(value * denominator), denominator)


def _real_roots(condition: sympy.Expr, x: sympy.Symbol) -> list[sympy.Expr]:
    if not condition.has(x):
        return []
    parts = (part(condition.subs(x, _REAL)) for part in (sympy.re, sympy.im))
    polynomial = sympy.gcd(*(sympy.Poly(sympy.expand(part), _REAL, extension=True) for part in parts))
    if polynomial.degree() < 1:
        return []
    if polynomial.get_domain() in (sympy.ZZ, sympy.QQ):
        return list(dict.fromkeys(sympy.real_roots(polynomial)))
    simple = polynomial.sqf_part()  # its roots are single, so that their digits converge
    exact = sympy.roots(simple)
    if len(exact) == simple.degree():
        return [sympy.simplify(root) for root in exact if abs(sympy.im(sympy.N(root, DIGITS))) < ON_CIRCLE]
    return [sympy.re(root) for root in simple.nroots(n=DIGITS, maxsteps=500) if abs(sympy.im(root)) < ON_CIRCLE]
