"""One stochastic step, and the stochastic equation of which it is a step (section 3).

A random eta in front of `f` is a step of the weak Euler scheme,

    X_{n+1} = X_n + E(eta) f(X_n) dt + s f(X_n) dW_n,    dW = sqrt(dt) xi,    xi = (eta - E eta) / s,    s^2 = Var eta,

and its equation is `dX = E(eta) f dt + s f dB`; added to `f` it gives `dX = f dt + s dB`. In front of the f of `lm`
(section 3.2) it makes the pair `dX = Y dt, dY = (E(eta) f - g Y) dt + s f dB`. All are read off the scheme's own
`advance`, gated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    u: State,
    xi: State,
    dt: Coefficient,
    scheme: Scheme | None = None,
    time: Time = 0.0,
) -> State:
    """One step of the gated scheme, forward Euler by default, for symbols and arrays alike."""
    rhs, gate = gated(noise, fs, xi, dt, time)
    return advance(scheme or Euler(), (Point(u, rhs),), dt, None, gate)


def gated(
    noise: Noise, fs: tuple[Function, ...], xi: State, dt: Coefficient, time: Time = 0.0
) -> tuple[RightHandSide, Coefficient]:
    """The right-hand side and the gate of one step: several weights stand within the right-hand side.

    Of an additive noise the last f is the constant 1.
    """
    mean, deviation = noise.mean, noise.deviation
    if not isinstance(dt, sympy.Expr):
        mean, deviation = number(mean, time), number(deviation, time)
    pairs = zip(noise.weights(mean + deviation * xi), noise.weights(mean), strict=True)
    gates = [stochastic_gate(weight, usual, dt) for weight, usual in pairs]
    if len(gates) == 1:
        return (lambda u, c, i: fs[0](u)), gates[0]
    return (lambda u, c, i: combine(*((gate, f(u)) for gate, f in zip(gates, fs, strict=False)))), 1


def damped_step(
    noise: Noise,
    fs: tuple[Function, ...],
    state: tuple[State, State],
    xi: State,
    dt: Coefficient,
    damping: Coefficient,
    time: Time = 0.0,
) -> tuple[State, State]:
    """The process of section 3.2, which is the LM scheme: `Y_{n+1} = (X_{n+1} - X_n) / dt`, and

        Y_{n+1} - Y_n = dt gate f(X_n) - g Y_n dt,

    that is `X_{n+1} = (2 - g dt) X_n - (1 - g dt) X_{n-1} + dt^2 gate f(X_n)`: LM with `k = g dt - 1`, step dt^2.
    (The paper prints `+ g Y dt` and from it `(2 + g) X_n - (1 + g) X_{n-1}`, against its own `Y' = f - g Y`.)
    """
    x, y = state
    rhs, gate = gated(noise, fs, xi, dt, time)
    k = damping * dt - 1
    new = advance(LM(k), (Point(x, rhs), Point(x - dt * y)), dt**2, k, gate)
    return new, (new - x) / dt


@dataclass(frozen=True)
class StochasticEquation:
    """`dX = drift dt + diffusion dB` in the symbols f, or f1 and f2; with a damping, `dX = Y dt, dY = …`."""

    drift: sympy.Expr
    diffusion: sympy.Expr
    damped: bool = False

    def linear(self, rates: Mapping[sympy.Symbol, Coefficient]) -> tuple[list[sympy.Expr], ...]:
        """With `f = rate X`: the state, X or X and Y, and the rows of its drift and of its diffusion."""
        force = {f: rate * X for f, rate in rates.items()}
        drift, diffusion = self.drift.subs(force), self.diffusion.subs(force)
        return ([X, Y], [Y, drift], [sympy.S.Zero, diffusion]) if self.damped else ([X], [drift], [diffusion])

    @property
    def lines(self) -> list[str]:
        """One for X, and one for Y where it is damped."""
        noise = f"{_product(self.diffusion)} dB"
        if not self.damped:
            return [f"dX = {_product(self.drift)} dt + {noise}"]
        force, rest = self.drift.as_independent(Y, as_Add=True)
        return ["dX = Y dt", f"dY = ({_product(force)} - {plain(-rest / Y)} Y) dt + {noise}"]

    def __str__(self) -> str:
        return ", ".join(self.lines)


def right_hand_sides(noise: Noise) -> tuple[sympy.Symbol, ...]:
    """The symbols of f, or of f1 and f2, …"""
    return (sympy.Symbol("f"),) if noise.branches == 1 else sympy.symbols(f"f1:{noise.branches + 1}")


def with_constant(noise: Noise, fs: Sequence[Function], one: State = 1) -> tuple[Function, ...]:
    """The functions that a noise weighs; where it is additive, what it is added to counts as a constant f."""
    return (*fs[: noise.branches], *([partial(_constant, one)] if noise.additive else []))


def _constant(value: State, u: State) -> State:
    return value


@checked
def stochastic_equation(
    noise: str | Noise, damping: float | sympy.Expr | None = None, **parameters: Parameter
) -> StochasticEquation:
    """Found by one step with symbols: what stands without xi is `drift dt`, what stands with it is `diffusion dW`.

    With a damping g, the step is that of `lm` (section 3.2), and the equation that of the pair X, Y = X'.
    """
    noise = get_noise(noise, **parameters)
    fs = with_constant(noise, [partial(_constant, f) for f in right_hand_sides(noise)])
    if damping is None:
        change = sympy.expand(stochastic_step(noise, fs, X, xi, dt) - X)
    else:
        change = sympy.expand(damped_step(noise, fs, (X, Y), xi, dt, sympy.nsimplify(exact(damping)))[1] - Y)
    drift, diffusion = sympy.expand(change.coeff(xi, 0) / dt), sympy.expand(change.coeff(xi, 1) / sympy.sqrt(dt))
    if damping is not None:
        return StochasticEquation(sympy.collect(drift, right_hand_sides(noise)), sympy.factor_terms(diffusion), True)
    return StochasticEquation(sympy.factor_terms(drift), sympy.factor_terms(diffusion))


def _product(expression: sympy.Expr) -> str:
    """`p f`: the coefficient stands before what it multiplies."""
    f = sympy.Symbol("f")
    coefficient = expression.coeff(f)
    if coefficient == 0:  # of two branches
        return str(expression).replace("*", " ")
    shown = f"({plain(coefficient)})" if coefficient.is_Add else plain(coefficient)
    return "f" if coefficient == 1 else f"{shown} f"
