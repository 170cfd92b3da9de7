"""An algebra of elementary differentials: a scheme runs on the Taylor series of a general system.

A *vector* is an elementary differential: a function label with the multiset of vectors to which its derivative is
applied, so that `("f", ("f",), ("f",))` is `f''(f, f)`. Its *grade* is the power of dt that goes with it. Besides
`f` (and `g`, in a partitioned system) there are two kinds of leaves: `tau`, the direction of time, which makes the
system non-autonomous, and `v1`, `v2`, …, the initial derivatives of an equation of higher order.

A `Series` is `base * u_0` plus a combination of vectors up to a grade. Series can be added and scaled, so that every
scheme runs on them unchanged; `System.rhs` is the one nonlinear operation,

    f(t_0 + s tau, u_0 + d) = sum_r f^(r)(s tau + d, …, s tau + d) / r!
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, TypeAlias

from stepnet.analysis.symbols import exact, vanishes
from stepnet.errors import UserError
from stepnet.schemes import (
    Coefficient,
    Equation,
    Point,
    RightHandSides,
    Scheme,
    State,
    advance,
    fixed_point,
    from_parts,
    parts_of,
)

Vector: TypeAlias = "tuple[Any, ...]"  # (label, child, child, …), children sorted
Combination: TypeAlias = "dict[Vector, Coefficient]"

TIME: Vector = ("tau",)


@cache
def grade(vector: Vector, derivative: int) -> int:
    """Return the power of dt: the order of the equation for each function, 1 for `tau`, j for `v_j`."""
    label = vector[0]
    root = 1 if label == "tau" else int(label[1:]) if label[0] == "v" else derivative
    return root + sum(grade(child, derivative) for child in vector[1:])


@dataclass(frozen=True, eq=False)
class Series:
    """`base * u_0 + sum_v terms[v] v`, a state or a right-hand side; dt is 1, since a grade implies its power."""

    terms: Combination
    base: Coefficient = 0

    __array_ufunc__ = None  # so that `numpy scalar * series` calls __rmul__

    def __add__(self, other: Series) -> Series:
        terms = dict(self.terms)
        for vector, c in other.terms.items():
            terms[vector] = terms.get(vector, 0) + c
        return Series(terms, self.base + other.base)

    def __sub__(self, other: Series) -> Series:
        return self + -1 * other

    def __mul__(self, c: Coefficient) -> Series:
        c = exact(c)
        return Series({vector: c * a for vector, a in self.terms.items()}, c * self.base)

    __rmul__ = __mul__

    def differs(self, other: Series) -> list[Vector | None]:
        """The vectors whose coefficients differ; `None` stands for `u_0`."""
        rest = self - other
        vectors: list[Vector | None] = [vector for vector, c in rest.terms.items() if not vanishes(c)]
        return vectors if vanishes(rest.base) else [None, *vectors]


@dataclass(frozen=True)
class System:
    """`mass u^(m) = f(t, u)` up to a grade, for a smooth f, a linear one, a partitioned pair or a sum of two."""

    equation: Equation
    limit: int

    @property
    def labels(self) -> tuple[str, ...]:
        return ("f", "g") if self.equation.partitioned or self.equation.split else ("f",)

    def past(self, steps: int) -> tuple[Point, ...]:
        """Return the exact solution at `t_0, t_0 - dt, …`, newest first: the past of a multistep method."""
        return tuple(Point(self.flow(-j), self.rhs(-j)) for j in range(steps))

    def rhs(self, time: int) -> RightHandSides:
        """The right-hand side as a scheme calls it at `t_0 + time dt`: `rhs(u, c, i)`; a pair when partitioned."""
        return from_parts([self._rhs(label, time) for label in self.labels])

    def flow(self, s: int) -> State:
        """The exact solution at `t_0 + s dt`: a vector of grade q goes with `s^q`."""
        m = self.equation.derivative
        return from_parts(
            [Series({v: c * s ** grade(v, m) for v, c in part.terms.items()}, 1) for part in _exact_solution(self)]
        )

    def evaluate(self, label: str, u: Series, time: Coefficient) -> Series:
        """Return `f(t_0 + time tau, u)`; away from u_0, f has other derivatives, and counts as another function."""
        if self.equation.linear:
            moved = {(label, vector): c for vector, c in u.terms.items()}
            return Series(self._truncate({(label,): u.base, **moved}))
        at = label if vanishes(u.base - 1) else f"{label}[{u.base} u0]"
        directions = {vector: c for vector, c in u.terms.items() if not vanishes(c)}
        if not vanishes(time):
            directions[TIME] = time
        budget = self.limit - self.equation.derivative
        terms = _multisets(sorted(directions.items(), key=lambda item: str(item[0])), budget, self.equation.derivative)
        return Series({(at, *sorted(children, key=str)): c for children, c in terms})

    def _rhs(self, label: str, time: int) -> Callable[[Series, Coefficient, int], Series]:
        return lambda u, c, i: self.evaluate(label, u, time + exact(c))

    def _truncate(self, terms: Combination) -> Combination:
        return {v: c for v, c in terms.items() if grade(v, self.equation.derivative) <= self.limit}


def step(scheme: Scheme, system: System) -> State:
    """One step of the scheme from the exact past."""
    return advance(scheme, system.past(scheme.steps), 1, scheme.k)


def defect(scheme: Scheme, equation: Equation, limit: int) -> int | None:
    """Return the lowest grade up to `limit` at which one step from the exact past is wrong, or None."""
    system = System(equation, limit)
    pairs = zip(parts_of(step(scheme, system)), parts_of(system.flow(1)), strict=True)
    wrong = [vector for a, b in pairs for vector in a.differs(b)]
    return min((0 if v is None else grade(v, equation.derivative) for v in wrong), default=None)


@lru_cache(maxsize=64)
def _exact_solution(system: System) -> tuple[Series, ...]:
    """Picard iteration: a term of the right-hand side that grows as s^(q-m) integrates m times to s^q (q-m)!/q!."""
    m, mass = system.equation.derivative, exact(system.equation.mass)
    start = Series({(f"v{j}",): 1 for j in range(1, m)}, 1)
    split = system.equation.split
    parts = (start,) if split else tuple(start for _ in system.labels)
    for _ in range(system.limit // m + 1):
        # X' = f(Y), Y' = g(X); or u' = f(u) + g(u)
        arguments = reversed(parts) if system.equation.partitioned else parts * 2 if split else parts
        slopes = [system.evaluate(label, u, 1) for label, u in zip(system.labels, arguments, strict=True)]
        slopes = [slopes[0] + slopes[1]] if split else slopes
        parts = tuple(start + _integrate(f, m) * (Fraction(1) / mass) for f in slopes)
    return parts


def _integrate(slope: Series, m: int) -> Series:
    def weight(q: int) -> Fraction:
        return Fraction(math.factorial(q - m), math.factorial(q))

    return Series({v: c * weight(grade(v, m)) for v, c in slope.terms.items()})


def _multisets(
    directions: list[tuple[Vector, Coefficient]], budget: int, m: int
) -> list[tuple[tuple[Vector, ...], Coefficient]]:
    """The terms of `sum_r (sum_i c_i v_i)^r / r!`: multisets of directions with `prod c_i^{n_i} / n_i!`."""
    multisets: list[tuple[tuple[Vector, ...], Coefficient, int]] = [((), 1, budget)]  # and the remaining grade
    for vector, c in directions:
        cost = grade(vector, m)
        multisets += [
            (children + (vector,) * n, weight * c**n * Fraction(1, math.factorial(n)), left - n * cost)
            for children, weight, left in multisets
            for n in range(1, left // cost + 1)
        ]
    return [(children, weight) for children, weight, _ in multisets]


@fixed_point.register
def _(guess: Series, phi: Callable[[Series], Series], tolerance: float) -> Series:
    """Iterate: each application of `phi` fixes one more grade, so it ends after finitely many."""
    u = guess
    for _ in range(64):
        new = phi(u)
        if not new.differs(u):
            return new
        u = new
    raise UserError("the implicit step has no expansion in powers of dt")
