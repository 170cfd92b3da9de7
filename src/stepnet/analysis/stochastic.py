"""One stochastic step, and the stochastic equation of which it is a step (section 3.1).

A random eta in front of `f` is a step of the weak Euler scheme,

    X_{n+1} = X_n + E(eta) f(X_n) dt + s f(X_n) dW_n,    dW = sqrt(dt) xi,    xi = (eta - E eta) / s,    s^2 = Var eta,

and its equation is `dX = E(eta) f dt + s f dB`. Both are read off the scheme's own `advance`, gated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sympy

from stepnet.analysis.noise_laws import Noise, Parameter, get_noise, number
from stepnet.analysis.notation import plain
from stepnet.analysis.symbols import dt
from stepnet.schemes import Euler, Point, Scheme, advance, combine
from stepnet.schemes.arithmetic import Coefficient, State
from stepnet.schemes.core import RightHandSide
from stepnet.schemes.gates import stochastic_gate

Function = Callable[[State], State]
xi = sympy.Symbol("xi", real=True)  # (eta - mean) / deviation


def stochastic_step(
    noise: Noise, fs: tuple[Function, ...], u: State, xi: State, dt: Coefficient, scheme: Scheme | None = None
) -> State:
    """One step of the gated scheme, forward Euler unless told, for symbols and arrays alike."""
    rhs, gate = gated(noise, fs, xi, dt)
    return advance(scheme or Euler(), (Point(u, rhs),), dt, None, gate)


def gated(noise: Noise, fs: tuple[Function, ...], xi: State, dt: Coefficient) -> tuple[RightHandSide, Coefficient]:
    """The right-hand side and the gate of one step: shake-shake's gates stand within its right-hand side."""
    symbolic = isinstance(dt, sympy.Expr)
    mean, deviation = (noise.mean, noise.deviation) if symbolic else (number(noise.mean), number(noise.deviation))
    eta = mean + deviation * xi
    if noise.branches == 1:
        return (lambda u, c, i: fs[0](u)), stochastic_gate(eta, mean, dt)
    first, second = stochastic_gate(eta, mean, dt), stochastic_gate(1 - eta, 1 - mean, dt)
    return (lambda u, c, i: combine((first, fs[0](u)), (second, fs[1](u)))), 1


@dataclass(frozen=True)
class StochasticEquation:
    """`dX = drift dt + diffusion dB`, in the symbols f, or f1 and f2."""

    drift: sympy.Expr
    diffusion: sympy.Expr

    def __str__(self) -> str:
        return f"dX = {_product(self.drift)} dt + {_product(self.diffusion)} dB"


def right_hand_sides(noise: Noise) -> tuple[sympy.Symbol, ...]:
    """The symbols of f, or of f1 and f2."""
    return (sympy.Symbol("f"),) if noise.branches == 1 else sympy.symbols("f1 f2")


def stochastic_equation(noise: str | Noise, **parameters: Parameter) -> StochasticEquation:
    """Found by one step with symbols: what stands without xi is `drift dt`, what stands with it is `diffusion dW`."""
    noise = get_noise(noise, **parameters)
    u = sympy.Symbol("X")
    fs = tuple((lambda u, f=f: f) for f in right_hand_sides(noise))
    change = sympy.expand(stochastic_step(noise, fs, u, xi, dt) - u)
    drift, diffusion = change.coeff(xi, 0) / dt, change.coeff(xi, 1) / sympy.sqrt(dt)
    return StochasticEquation(*(sympy.factor_terms(sympy.expand(part)) for part in (drift, diffusion)))


def _product(expression: sympy.Expr) -> str:
    """`p f`: the coefficient stands before what it multiplies."""
    f = sympy.Symbol("f")
    coefficient = expression.coeff(f)
    if coefficient == 0:  # of two branches
        return str(expression).replace("*", " ")
    return "f" if coefficient == 1 else f"{plain(coefficient)} f"
