"""The paper's two PDE examples, Lax–Friedrichs and Lax–Wendroff for `u_t = c u_x` (section 2.2).

A stencil is the weights of `u^{n+1}_j = sum_m w_m(r) u^n_{j+m}`, with `r = c dt/dx`. It multiplies by the symbol
`G = sum_m w_m e^(m dx d/dx)`, so the equation that it solves is `u_t = (1/dt) log G u`. Expanded in dx, this is the
modified equation, derived from the weights only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import sympy

from stepnet.analysis.power_series import log, of_shifts
from stepnet.analysis.stability import Array
from stepnet.analysis.symbols import dt, exact
from stepnet.arguments import Count, checked
from stepnet.errors import UserError

c, dx, r, x, t = sympy.symbols("c dx r x t")
u = sympy.Function("u")(t, x)


@checked
@dataclass(frozen=True)
class Stencil:
    """One step of a linear scheme on a grid: the weight of `u_{j+m}` for each offset m."""

    name: str
    weights: dict[int, sympy.Expr | float]

    def __post_init__(self) -> None:
        for weight in self.weights.values():
            exact(weight)  # raises for a string, which sympy would evaluate as code

    def step(self, values: Array, ratio: float) -> Array:
        """One step on a periodic grid."""
        weights = {m: float(sympy.sympify(w).subs(r, ratio)) for m, w in self.weights.items()}
        return np.asarray(sum(w * np.roll(values, -m) for m, w in weights.items()))


LAX_FRIEDRICHS = Stencil("Lax-Friedrichs", {1: (1 + r) / 2, -1: (1 - r) / 2})
LAX_WENDROFF = Stencil("Lax-Wendroff", {1: (r**2 + r) / 2, 0: 1 - r**2, -1: (r**2 - r) / 2})


@checked
def modified_transport(stencil: Stencil, terms: Count = 1) -> sympy.Eq:
    """`u_t - c u_x = ` the first non-zero corrections, with `r = c dt/dx` kept as a symbol."""
    correction = sum(_in_steps(coefficient, n) * u.diff(x, n) for n, coefficient in corrections(stencil, terms))
    return sympy.Eq(u.diff(t) - c * u.diff(x), correction)


def run(stencil: Stencil, values: Array, ratio: float, steps: int) -> Array:
    """Return the values on a periodic grid after the steps, at `r = ratio`."""
    if not np.isfinite(ratio) or steps < 0:
        raise UserError(f"r = {ratio}, steps = {steps}: expected a finite r and steps from 0 up")
    for _ in range(steps):
        values = stencil.step(values, ratio)
    return values


def modified_solution(stencil: Stencil, start: Array, ratio: float, steps: int, terms: int = 1) -> Array:
    """Solve the modified equation on the grid, wave by wave, up to the time of `steps` steps.

    With `terms = 0` this is the exact solution, `u_0(x + c t)`.
    """
    shift = 2j * np.pi * np.fft.rfftfreq(len(start))  # dx d/dx of each wave
    rate = ratio * shift
    for n, a in corrections(stencil, terms) if terms else ():
        rate = rate + float(a.subs(r, ratio)) * shift**n
    return np.asarray(np.fft.irfft(np.exp(steps * rate) * np.fft.rfft(start), len(start)))


def corrections(stencil: Stencil, terms: int) -> list[tuple[int, sympy.Expr]]:
    """`(n, a_n)` of `log G = r D + sum a_n D^n`, `D = dx d/dx`: the first non-zero ones."""
    series = log(of_shifts(stencil.weights, terms + 4))
    series[1] = sympy.cancel(series[1] - r)
    return [(n, sympy.factor(a)) for n, a in enumerate(series) if a != 0][:terms]


def _in_steps(a: sympy.Expr, n: int) -> sympy.Expr:
    """Return `a dx^n/dt`, with one factor r written as `c dt/dx` if a has one, as in the literature."""
    divided = sympy.cancel(a / r)
    if sympy.denom(divided).has(r):
        return a * dx**n / dt
    return c * dx ** (n - 1) * sympy.factor(divided)
