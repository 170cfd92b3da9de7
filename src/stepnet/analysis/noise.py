"""The noises of stochastic training, and whether they are those of a stochastic equation (section 3.1, appendix B).

A random eta in front of `f` is a step of the weak Euler scheme,

    X_{n+1} = X_n + E(eta) f(X_n) dt + s f(X_n) dW_n,    dW = sqrt(dt) xi,    xi = (eta - E eta) / s,    s^2 = Var eta,

which converges weakly to `dX = E(eta) f dt + s f dB` where

    |E dW| + |E dW^3| + |E dW^2 - dt| <= K dt^2.

Every noise states its law once; moments, condition and equation follow by symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import sympy
from numpy.typing import NDArray
from scipy.special import ndtri

from stepnet.analysis.notation import plain
from stepnet.analysis.symbols import dt, exact
from stepnet.errors import UserError, check_count, unknown
from stepnet.schemes import Point, Scheme, advance, combine
from stepnet.schemes.gates import stochastic_gate
from stepnet.schemes.runge_kutta import Euler

Array = NDArray[np.float64]
Function = Callable[[Any], Any]
xi = sympy.Symbol("xi", real=True)
p = sympy.Symbol("p", real=True)
sigma = sympy.Symbol("sigma", positive=True)


class Noise:
    """A law of eta, told by that of `xi = (eta - mean) / deviation`, which has mean 0 and variance 1."""

    name: ClassVar[str]
    about: ClassVar[str]
    branches: ClassVar[int] = 1  # 2: the right-hand side is eta f1 + (1 - eta) f2
    mean: sympy.Expr
    deviation: sympy.Expr

    def moment(self, m: int) -> sympy.Expr:
        """`E xi^m`."""
        raise TypeError(f"{type(self).__name__} defines no moment")

    def quantile(self, u: Array) -> Array:
        """xi from a uniform u in (0, 1)."""
        raise TypeError(f"{type(self).__name__} defines no quantile")

    def quadrature(self, n: int) -> tuple[Array, Array]:
        """Points and weights: `E g(xi) = sum_j w_j g(x_j)`, exact for polynomials of degree 2n - 1 at least."""
        raise TypeError(f"{type(self).__name__} defines no quadrature")

    def __repr__(self) -> str:
        return self.name


class StochasticDepth(Noise):
    """`P(eta = 1) = p`, `P(eta = 0) = 1 - p` (Huang et al. 2016). Without a number, p stays a symbol."""

    name: ClassVar[str] = "stochastic_depth"
    about: ClassVar[str] = "eta is 1 with probability p and 0 otherwise (Huang et al. 2016)"

    def __init__(self, p: Any = p) -> None:
        self.mean = _parameter("p", p, upper=1)
        self.deviation = sympy.sqrt(self.mean * (1 - self.mean))

    def moment(self, m: int) -> sympy.Expr:
        survive = self.mean
        central = survive * (1 - survive) ** m + (1 - survive) * (-survive) ** m
        return sympy.simplify(central / self.deviation**m)

    def quantile(self, u: Array) -> Array:
        (drop, keep), (chance, _) = self.quadrature(1)
        return np.asarray(np.where(u < chance, drop, keep))

    def quadrature(self, n: int) -> tuple[Array, Array]:
        survive = number(self.mean)
        return (np.array([0.0, 1.0]) - survive) / number(self.deviation), np.array([1 - survive, survive])


class ShakeShake(Noise):
    """`eta ~ U(0, 1)` in `eta f1 + (1 - eta) f2` (Gastaldi 2017)."""

    name: ClassVar[str] = "shake_shake"
    about: ClassVar[str] = "eta is uniform on (0, 1), and weighs two branches (Gastaldi 2017)"
    branches: ClassVar[int] = 2

    def __init__(self) -> None:
        self.mean = sympy.Rational(1, 2)
        self.deviation = 1 / sympy.sqrt(12)

    def moment(self, m: int) -> sympy.Expr:
        return sympy.sqrt(3) ** m / (m + 1) if m % 2 == 0 else sympy.S.Zero

    def quantile(self, u: Array) -> Array:
        return np.asarray((2 * u - 1) * np.sqrt(3))

    def quadrature(self, n: int) -> tuple[Array, Array]:
        points, weights = np.polynomial.legendre.leggauss(n)
        return points * np.sqrt(3), weights / 2


class _Multiplicative(Noise):
    def __init__(self, sigma: Any = sigma) -> None:
        self.mean = sympy.S.One
        self.deviation = _parameter("sigma", sigma)


class Rademacher(_Multiplicative):
    """`eta = 1 + sigma` or `1 - sigma`, equally often: appendix B's Bernoulli variable."""

    name: ClassVar[str] = "rademacher"
    about: ClassVar[str] = "eta is 1 + sigma or 1 - sigma, equally often (appendix B)"

    def moment(self, m: int) -> sympy.Expr:
        return sympy.Integer(1 - m % 2)

    def quantile(self, u: Array) -> Array:
        return np.where(u < 0.5, -1.0, 1.0)

    def quadrature(self, n: int) -> tuple[Array, Array]:
        return np.array([-1.0, 1.0]), np.array([0.5, 0.5])


class Gaussian(_Multiplicative):
    """`eta ~ N(1, sigma^2)`: the increments are those of Brownian motion."""

    name: ClassVar[str] = "gaussian"
    about: ClassVar[str] = "eta is normal with mean 1 and deviation sigma"

    def moment(self, m: int) -> sympy.Expr:
        return sympy.factorial2(m - 1) if m % 2 == 0 else sympy.S.Zero

    def quantile(self, u: Array) -> Array:
        return np.asarray(ndtri(u))

    def quadrature(self, n: int) -> tuple[Array, Array]:
        points, weights = np.polynomial.hermite_e.hermegauss(n)
        return points, weights / weights.sum()


NOISES: dict[str, type[Noise]] = {noise.name: noise for noise in (StochasticDepth, ShakeShake, Rademacher, Gaussian)}


def list_noises() -> list[str]:
    """The names."""
    return list(NOISES)


def get_noise(noise: str | Noise, **parameters: Any) -> Noise:
    """By name, with its parameter: `get_noise("stochastic_depth", p=0.2)`."""
    if isinstance(noise, Noise):
        return noise
    if noise not in NOISES:
        raise unknown("noise", noise, NOISES)
    try:
        return NOISES[noise](**parameters)
    except TypeError:
        raise UserError(f"noise {noise!r} has no parameter {', '.join(parameters)}: {NOISES[noise].about}") from None


def increment_moment(noise: Noise, m: int) -> sympy.Expr:
    """`E dW^m = dt^(m/2) E xi^m`."""
    return dt ** sympy.Rational(m, 2) * noise.moment(m)


def stochastic_step(
    noise: Noise, fs: tuple[Function, ...], u: Any, xi: Any, dt: Any, scheme: Scheme | None = None
) -> Any:
    """One step of the gated scheme, forward Euler unless told, for symbols and arrays alike."""
    rhs, gate = gated(noise, fs, xi, dt)
    return advance(scheme or Euler(), (Point(u, rhs),), dt, None, gate)


def gated(noise: Noise, fs: tuple[Function, ...], xi: Any, dt: Any) -> tuple[Callable[[Any, Any, int], Any], Any]:
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


def stochastic_equation(noise: str | Noise, **parameters: Any) -> StochasticEquation:
    """Found by one step with symbols: what stands without xi is `drift dt`, what stands with it is `diffusion dW`."""
    noise = get_noise(noise, **parameters)
    u = sympy.Symbol("X")
    fs = tuple((lambda u, f=f: f) for f in right_hand_sides(noise))
    change = sympy.expand(stochastic_step(noise, fs, u, xi, dt) - u)
    drift, diffusion = change.coeff(xi, 0) / dt, change.coeff(xi, 1) / sympy.sqrt(dt)
    return StochasticEquation(*(sympy.factor_terms(sympy.expand(part)) for part in (drift, diffusion)))


@dataclass(frozen=True)
class Term:
    """`coefficient dt^order`, or 0, whose order is infinite."""

    name: str
    value: sympy.Expr
    order: sympy.Expr
    coefficient: sympy.Expr


@dataclass(frozen=True)
class Smallness:
    """The assumption `expression = O(dt^power)`."""

    expression: sympy.Expr
    power: sympy.Expr

    def __str__(self) -> str:
        return f"{plain(self.expression)} = O({plain(dt**self.power)})"


@dataclass(frozen=True)
class WeakCondition:
    """Whether `|E dW| + |E dW^3| + |E dW^2 - dt| <= K dt^2`; where it fails, what would make it hold."""

    terms: tuple[Term, ...]
    assumptions: tuple[Smallness, ...]

    @property
    def holds(self) -> bool:
        """For the noise as it is, without an assumption."""
        return all(term.order >= REQUIRED for term in self.terms)

    def __str__(self) -> str:
        if self.holds:
            return "holds"
        reason = ", ".join(f"{term.name} is of order {term.order}" for term in self.terms if term.order < REQUIRED)
        return f"fails: {reason}" + (
            f"; holds if {' and '.join(map(str, self.assumptions))}" if self.assumptions else ""
        )


REQUIRED = 2  # the power of dt that the condition asks of each term


def weak_condition(noise: str | Noise, **parameters: Any) -> WeakCondition:
    """Decide the condition of appendix B by symbols. An assumption is stated only if it makes the term small enough."""
    noise = get_noise(noise, **parameters)
    moments = {m: increment_moment(noise, m) for m in (1, 2, 3)}
    terms = (
        _term("E dW", moments[1]),
        _term("E dW^2 - dt", moments[2] - dt),
        _term("E dW^3", moments[3]),
    )
    failing = [term for term in terms if term.order < REQUIRED and term.coefficient.free_symbols]
    return WeakCondition(terms, tuple(small for term in failing if (small := _assumption(term)) is not None))


def one_step_error(noise: str | Noise, moment: int = 1, **parameters: Any) -> Term:
    """The leading term of `E X_1^m - E X(dt)^m` from X = 1, with `f = a X`, or `f1 = a X` and `f2 = b X`.

    An error of order dt^q in each of T/dt steps adds up to one of order dt^(q - 1): that is the weak order of the m-th
    moment, whatever the rates are.
    """
    noise = get_noise(noise, **parameters)
    check_count("moment", moment)
    a, b = sympy.symbols("a b")
    fs: tuple[Function, ...] = (lambda x: a * x, lambda x: b * x)
    power = sympy.expand(stochastic_step(noise, fs, sympy.S.One, xi, dt) ** moment)
    found = sum(power.coeff(xi, j) * noise.moment(j) for j in range(moment + 1))
    equation, rates = stochastic_equation(noise), dict(zip(right_hand_sides(noise), (a, b), strict=False))
    drift, diffusion = equation.drift.subs(rates), equation.diffusion.subs(rates)
    growth = dt * (moment * drift + moment * (moment - 1) * diffusion**2 / 2)
    wanted = 1 + growth + growth**2 / 2  # of exp(growth): Euler's error is no smaller than dt^2
    root = sympy.Symbol("root", positive=True)  # of dt
    error = sympy.Poly(sympy.expand((found - wanted).subs(dt, root**2)), root)
    terms = ((_factored(sympy.simplify(c)), sympy.Rational(n, 2)) for (n,), c in reversed(error.terms()))
    coefficient, order = next(term for term in terms if term[0] != 0)
    return Term("E X" if moment == 1 else f"E X^{moment}", coefficient * dt**order, order, coefficient)


def number(value: sympy.Expr) -> float:
    """A parameter as a float; one that was left a symbol cannot be sampled."""
    if value.free_symbols:
        raise UserError(f"{value} is a symbol: sampling needs a number, such as p=0.5 or sigma=0.5")
    return float(value)


def _term(name: str, value: sympy.Expr) -> Term:
    value = sympy.simplify(value)
    if value == 0:
        return Term(name, value, sympy.oo, sympy.S.Zero)
    coefficient, order = value.as_leading_term(dt).as_coeff_exponent(dt)
    return Term(name, value, order, _factored(coefficient))


def _factored(coefficient: sympy.Expr) -> sympy.Expr:
    """In factors such as `1 - 2 p`, whose number is positive."""
    factors = sympy.Mul.make_args(sympy.factor(coefficient))
    turned = [factor for factor in factors if factor.is_Add and factor.as_coeff_Add()[0].is_negative]
    return (-1) ** len(turned) * sympy.Mul(*(-factor if factor in turned else factor for factor in factors))


def _assumption(term: Term) -> Smallness | None:
    """The coefficient's numerator, small enough; verified with the parameter that solves it as an equation."""
    numerator, _ = sympy.fraction(sympy.together(term.coefficient))
    power = REQUIRED - term.order
    (symbol,) = numerator.free_symbols
    if numerator.subs(symbol, 0).is_negative:
        numerator = sympy.expand(-numerator)
    bound = sympy.Symbol("c", positive=True) * dt**power
    for root in sympy.solve(numerator - bound, symbol):
        if _term(term.name, term.value.subs(symbol, root)).order >= REQUIRED:
            return Smallness(numerator, power)
    return None


def _parameter(name: str, value: Any, upper: float = float("inf")) -> sympy.Expr:
    if isinstance(value, sympy.Expr) and value.free_symbols:
        return value
    if not (isinstance(value, int | float | sympy.Expr) and 0 < value < upper):
        between = f"0 < {name} < {upper}" if np.isfinite(upper) else f"{name} > 0 and finite"
        raise UserError(f"{name} = {value}: expected {between} (a noise without variance is none)")
    return sympy.nsimplify(exact(value), rational=True)


def _product(expression: sympy.Expr) -> str:
    """`p f`: the coefficient stands before what it multiplies."""
    f = sympy.Symbol("f")
    coefficient = expression.coeff(f)
    if coefficient == 0:  # of two branches
        return str(expression).replace("*", " ")
    return "f" if coefficient == 1 else f"{plain(coefficient)} f"
