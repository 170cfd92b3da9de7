"""Splitting: `u' = f(u) + g(u)`, whose two parts are advanced in turn.

A transformer's layer has two right-hand sides, attention f and feed-forward network g. Advanced one after the other
they are Lie–Trotter splitting, added at the same state they are Euler's step of the sum, and with g in two halves
around f they are Strang's splitting (Macaron, Conformer).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from stepnet.errors import check_known
from stepnet.schemes.arithmetic import Coefficient, Difference, State, combine, scale
from stepnet.schemes.core import Equation, Past, RightHandSide, Scheme
from stepnet.schemes.scheme_registry import register_scheme

HALF = Fraction(1, 2)


class Splitting(Scheme):
    """A one-step method for two right-hand sides `(f, g)` of one state."""

    splits = True
    stages = 2  # of f and g together

    @property
    def equation(self) -> Equation:
        return Equation(split=True)


@register_scheme("parallel")
class Parallel(Splitting):
    """`u_{n+1} = u_n + dt (f(u_n) + g(u_n))`: both parts at the same state, Euler's step of the sum."""

    reference = "Wang, Komatsuzaki 2021 (GPT-J); Chowdhery et al. 2022 (PaLM)"

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        (f, g), u = past[0].pair, past[0].u
        return combine((dt, f(u, 0, 0)), (dt, g(u, 0, 0)))


@register_scheme("lie_trotter")
class LieTrotter(Splitting):
    """`v = u_n + dt f(u_n)`, `u_{n+1} = v + dt g(v)`: one part after the other, as in a transformer."""

    reference = "Trotter 1959; Lu et al. 2020 (transformers)"

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        (f, g), u = past[0].pair, past[0].u
        v = combine((1, u), (1, combine((dt, f(u, 0, 0)))))
        return Difference(combine((1, v), (1, combine((dt, g(v, 0, 0))))), u)  # the bits of two Euler steps


@register_scheme("strang")
class Strang(Splitting):
    """Half a step of g, a step of f, half a step of g, each by the `base`; both halves evaluate the same g.

    With Euler's steps it has order 1: a symmetric splitting is only as accurate as its parts. `strang+midpoint` has
    order 2. Macaron's layer takes Euler's steps, with a g of its own for each half.
    """

    reference = "Strang 1968; Lu et al. 2020 (Macaron)"

    def __init__(self, base: Literal["euler", "midpoint"] = "euler") -> None:
        check_known("base", base, ("euler", "midpoint"))
        self.base = base
        self.order, self.stages = (2, 6) if base == "midpoint" else (1, 3)
        if base != "euler":
            self.name = f"strang+{base}"  # what builds it again

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        (f, g), u = past[0].pair, past[0].u
        first = self._moved(g, u, dt, Fraction(0), HALF, 0)
        second = combine((1, first), (1, self._moved(f, combine((1, u), (1, first)), dt, Fraction(0), Fraction(1), 0)))
        return combine((1, second), (1, self._moved(g, combine((1, u), (1, second)), dt, HALF, HALF, 1)))

    def _moved(self, part: RightHandSide, v: State, dt: Coefficient, c: Fraction, share: Fraction, turn: int) -> State:
        """What a step of one part adds to `v`: from time `c`, over its `share` of dt, the part's `turn`-th in all."""
        if self.base == "euler":
            return combine((scale(share, dt), part(v, c, turn)))
        middle = combine((1, v), (scale(share * HALF, dt), part(v, c, 2 * turn)))
        return combine((scale(share, dt), part(middle, c + HALF * share, 2 * turn + 1)))
