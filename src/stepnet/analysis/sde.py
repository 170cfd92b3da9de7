"""One stochastic step, and the stochastic equation of which it is a step (section 3).

A random eta in front of `f` is a step of the weak Euler scheme,

    X_{n+1} = X_n + E(eta) f(X_n) dt + s f(X_n) dW_n,    dW = sqrt(dt) xi,    xi = (eta - E eta) / s,    s^2 = Var eta,

and its equation is `dX = E(eta) f dt + s f dB`; added to `f` it gives `dX = f dt + s dB`. In front of the f of `lm`
(section 3.2) it makes the pair `dX = Y dt, dY = (E(eta) f - g Y) dt + s f dB`. All follow from one gated step by
`advance`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import sympy

from stepnet.analysis.notation import plain
from stepnet.analysis.symbols import dt, exact
from stepnet.arguments import checked
from stepnet.schemes import (
    LM,
    Coefficient,
    Euler,
    Point,
    RightHandSide,
    Scheme,
    State,
    advance,
    combine,
    stochastic_gate,
)
from stepnet.schemes.noises import Noise, Parameter, Time, get_noise, number

Function = Callable[[State], State]
xi = sympy.Symbol("xi", real=True)  # (eta - mean) / deviation
X, Y = sympy.symbols("X Y")


def stochastic_step(
    noise: Noise,
    fs: tuple[Function, ...],
    state: Iterable[State],
    xi: State,
    dt: Coefficient,
    damping: Coefficient = None,
    scheme: Scheme | None = None,
    time: Time = 0.0,
) -> list[State]:
    """One gated step, for symbols and arrays alike: of the state X by `scheme` (default forward Euler), or of (X, Y).

    With a damping g it is the process of section 3.2, which is the LM scheme: `Y_{n+1} = (X_{n+1} - X_n) / dt`, and

        Y_{n+1} - Y_n = dt gate f(X_n) - g Y_n dt,

    that is `X_{n+1} = (2 - g dt) X_n - (1 - g dt) X_{n-1} + dt^2 gate f(X_n)`: LM with `k = g dt - 1`, step dt^2.
    (The paper prints `+ g Y dt` and from it `(2 + g) X_n - (1 + g) X_{n-1}`, against its own `Y' = f - g Y`.)
    """
    rhs, gate = gated(noise, fs, xi, dt, time)
    if damping is None:
        (x,) = state
        return [advance(scheme or Euler(), (Point(x, rhs),), dt, None, gate)]
    x, y = state
    k = damping * dt - 1
    new = advance(LM(k), (Point(x, rhs), Point(x - dt * y)), dt**2, k, gate)
    return [new, (new - x) / dt]


def gated(
    noise: Noise, fs: tuple[Function, ...], xi: State, dt: Coefficient, time: Time = 0.0
) -> tuple[RightHandSide, Coefficient]:
    """Return the right-hand side and the gate of one step; several weights are put into the right-hand side.

    For an additive noise the last f is the constant 1.
    """
    mean, deviation = noise.mean, noise.deviation
    if not isinstance(dt, sympy.Expr):
        mean, deviation = number(mean, time), number(deviation, time)
    pairs = zip(noise.weights(mean + deviation * xi), noise.weights(mean), strict=True)
    gates = [stochastic_gate(weight, usual, dt) for weight, usual in pairs]
    if len(gates) == 1:
        return (lambda u, c, i: fs[0](u)), gates[0]
    return (lambda u, c, i: combine(*((gate, f(u)) for gate, f in zip(gates, fs, strict=False)))), 1


@dataclass(frozen=True)
class StochasticEquation:
    """`dX = drift dt + diffusion dB` in the symbols f, or f1 and f2; with a damping, `dX = Y dt, dY = …`."""

    drift: sympy.Expr
    diffusion: sympy.Expr
    damped: bool = False

    def linear(self, rates: Mapping[sympy.Symbol, Coefficient]) -> tuple[list[sympy.Expr], ...]:
        """Return the state, X or (X, Y), with its drift and its diffusion for `f = rate X`."""
        force = {f: rate * X for f, rate in rates.items()}
        drift, diffusion = self.drift.subs(force), self.diffusion.subs(force)
        return ([X, Y], [Y, drift], [sympy.S.Zero, diffusion]) if self.damped else ([X], [drift], [diffusion])

    @property
    def lines(self) -> list[str]:
        """One line for X, and one for Y if damped."""
        noise = f"{_product(self.diffusion)} dB"
        if not self.damped:
            return [f"dX = {_product(self.drift)} dt + {noise}"]
        force, rest = self.drift.as_independent(Y, as_Add=True)
        return ["dX = Y dt", f"dY = ({_product(force)} - {plain(-rest / Y)} Y) dt + {noise}"]

    def __str__(self) -> str:
        return ", ".join(self.lines)


def right_hand_sides(noise: Noise) -> tuple[sympy.Symbol, ...]:
    """Return the symbol f, or f1, f2, …"""
    return (sympy.Symbol("f"),) if noise.branches == 1 else sympy.symbols(f"f1:{noise.branches + 1}")


def with_constant(noise: Noise, fs: Sequence[Function], one: State = 1) -> tuple[Function, ...]:
    """Return the functions that a noise multiplies; an additive noise multiplies the constant function `one`."""
    return (*fs[: noise.branches], *([partial(_constant, one)] if noise.additive else []))


def _constant(value: State, u: State) -> State:
    return value


@checked
def stochastic_equation(
    noise: str | Noise, damping: float | sympy.Expr | None = None, **parameters: Parameter
) -> StochasticEquation:
    """Derive the stochastic equation from one step on symbols: the terms without xi are `drift dt`, the others
    `diffusion dW`.

    With a damping g, the step is that of `lm` (section 3.2), and the equation that of the pair X, Y = X'.
    """
    noise = get_noise(noise, **parameters)
    fs = with_constant(noise, [partial(_constant, f) for f in right_hand_sides(noise)])
    g = None if damping is None else sympy.nsimplify(exact(damping))
    state = [X] if g is None else [X, Y]
    change = sympy.expand(stochastic_step(noise, fs, state, xi, dt, g)[-1] - state[-1])
    drift, diffusion = sympy.expand(change.coeff(xi, 0) / dt), sympy.expand(change.coeff(xi, 1) / sympy.sqrt(dt))
    drift = sympy.factor_terms(drift) if g is None else sympy.collect(drift, right_hand_sides(noise))
    return StochasticEquation(drift, sympy.factor_terms(diffusion), damped=g is not None)


def _product(expression: sympy.Expr) -> str:
    """Format `p f`, with the coefficient before f."""
    f = sympy.Symbol("f")
    coefficient = expression.coeff(f)
    if coefficient == 0:  # two branches
        return str(expression).replace("*", " ")
    shown = f"({plain(coefficient)})" if coefficient.is_Add else plain(coefficient)
    return "f" if coefficient == 1 else f"{shown} f"
