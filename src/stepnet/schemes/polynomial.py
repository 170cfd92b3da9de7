"""PolyNet's truncations of backward Euler, `(I - dt f)^{-1}` (paper, section 2.1), with `F = dt f`.

`neumann` is PolyNet's formula, `u + F(u) + F(F(u)) + …`. It is the Neumann series of the inverse only when `f` is
linear: `F(F(u))` evaluates `f` at `F(u)`, a small vector, not at a state near `u`. For nonlinear `f` it is consistent
with `u' = f` only where `f(0) = 0`. `picard`, `u + F(u + F(u + …))`, is the same polynomial for linear `f` and is
consistent for every `f`: it is the fixed-point iteration of backward Euler, stopped early.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar

from annotated_types import Ge, Le

from stepnet.arguments import checked
from stepnet.schemes.arithmetic import Coefficient, State, combine
from stepnet.schemes.core import Equation, Past, Scheme
from stepnet.schemes.scheme_registry import register_family, register_scheme

Degree = Annotated[int, Ge(1), Le(64)]  # evaluations in a step


class _Truncation(Scheme):
    reference = "Zhang, Li, Loy, Lin 2017 (PolyNet); paper, section 2.1"
    order = 1

    @checked
    def __init__(self, m: Degree = 2) -> None:
        self.m = self.stages = m
        self.name = f"{type(self).__name__.lower()}{m}"


class Neumann(_Truncation):
    """`u + F(u) + F(F(u)) + … + F^m(u)`: poly-2 and poly-3 are m = 2 and 3. For linear f."""

    network: ClassVar[str] = "PolyNet"

    @property
    def equation(self) -> Equation:
        return Equation(linear=self.m > 1)

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        point = past[0]
        powers = [combine((dt, point.f))]
        for i in range(1, self.m):
            powers.append(combine((dt, point.rhs(powers[-1], 0, i))))
        return combine(*((1, power) for power in powers))


class Picard(_Truncation):
    """`u + F(u + F(u + … F(u)))`, m deep: the same polynomial for linear f, consistent for every f."""

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        point = past[0]
        slope = point.f
        for i in range(1, self.m):
            # backward Euler evaluates f at t_{n+1}
            slope = point.rhs(combine((1, point.u), (dt, slope)), 1, i)
        return combine((dt, slope))


register_scheme("neumann2", aliases=("neumann", "poly-2", "poly2"))(partial(Neumann, 2))
register_scheme("neumann3", aliases=("poly-3", "poly3"))(partial(Neumann, 3))
register_scheme("picard2", aliases=("picard",))(partial(Picard, 2))
register_scheme("picard3")(partial(Picard, 3))
register_family("neumann", Neumann)
register_family("picard", Picard)
