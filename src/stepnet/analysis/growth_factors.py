"""The amplification polynomial: the scheme run on `mass u^(m) = lambda u`, with symbols for the past states.

The result is linear in them, so one step is a matrix `M(z) = V + z B (I - z A)^-1 U`. Linear stability follows from its
minimal polynomial in `zeta`, with `z = dt^m lambda`. For a partitioned system, `f = lambda Y` and
`g = lambda X`; for a sum `f + g`, both are `lambda/2 u`.
"""

from __future__ import annotations

from collections.abc import Callable

import sympy

from stepnet.analysis.symbols import z, zeta
from stepnet.errors import UserError
from stepnet.schemes import Coefficient, Point, Scheme, advance, fixed_point, from_parts, parts_of

NEW = sympy.Symbol("u_{n+1}")  # the unknown of an implicit step


def companion_matrix(method: Scheme) -> sympy.Matrix:
    """Return the matrix that takes `(u_n, u_{n-1}, …)` to `(u_{n+1}, u_n, …)` on the linear equation."""
    parts = len(method.parts)
    symbols = [sympy.Symbol(f"x{i}") for i in range(method.steps * parts)]
    past = [symbols[j : j + parts] for j in range(0, len(symbols), parts)]

    def rhs(u: sympy.Expr, c: Coefficient, i: int) -> sympy.Expr:
        return z * u / (2 if method.splits else 1)

    points = tuple(Point(from_parts(u), from_parts([rhs] * len(method.functions))) for u in past)
    new = advance(method, points, 1, method.k)
    rows = [sympy.nsimplify(sympy.expand(part), rational=True) for part in parts_of(new)]
    matrix = sympy.zeros(len(symbols), len(symbols))
    for i, row in enumerate(rows):
        for j, symbol in enumerate(symbols):
            matrix[i, j] = sympy.cancel(sympy.diff(row, symbol))
    for i in range(parts, len(symbols)):  # the older states move one place on
        matrix[i, i - parts] = 1
    return matrix


def minimal_polynomial(matrix: sympy.Matrix) -> sympy.Poly:
    """Return the polynomial of least degree in zeta that a matrix satisfies, without denominators; in zeta and z.

    Its roots are the growth factors, each as multiple as its largest Jordan block: the powers of the matrix are bounded
    where they lie in the unit disc, and those on the circle are simple. Of a companion matrix it is the characteristic
    polynomial. Its leading coefficient is positive at z = 0.
    """
    powers = [sympy.eye(matrix.rows)]
    while True:
        powers.append((powers[-1] * matrix).applyfunc(sympy.cancel))
        dependence = sympy.Matrix.hstack(*(power.vec() for power in powers)).nullspace(simplify=sympy.cancel)
        if dependence:
            break
    total = sum(c * zeta**n for n, c in enumerate(dependence[0]))
    numerator, _ = sympy.fraction(sympy.cancel(sympy.together(total)))
    leading = sympy.LC(numerator.subs(z, 0), zeta)
    return sympy.Poly(-numerator if leading.could_extract_minus_sign() else numerator, zeta, z)


@fixed_point.register
def _(guess: sympy.Expr, phi: Callable[[sympy.Expr], sympy.Expr], tolerance: float) -> sympy.Expr:
    """Solve a symbolic implicit step, if `phi` is linear in its unknown."""
    image = sympy.expand(phi(NEW))
    slope = sympy.diff(image, NEW)
    if slope.has(NEW):
        raise UserError(f"the implicit step u = {image} is not linear in u: no closed form")
    return image.subs(NEW, 0) / (1 - slope)
