"""The noises of stochastic training: a random eta in every step (paper, section 3.1), by name.

A noise defines its distribution and how eta enters the right-hand side. Moments, condition, equation and weak orders
are derived symbolically (`stepnet.analysis`); networks draw eta from the same distribution (`nets.stochastic`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np
import sympy
from numpy.typing import NDArray

from stepnet.arguments import OpenShare, Positive, checked
from stepnet.errors import UserError
from stepnet.registry import Registry, build, refuse_options
from stepnet.schemes.arithmetic import Coefficient, exact

Array = NDArray[np.float64]
Time: TypeAlias = float | Array
Parameter: TypeAlias = float | sympy.Expr | Callable[[sympy.Symbol], sympy.Expr]
t = sympy.Symbol("t", real=True)  # time, for a parameter that depends on it
p = sympy.Symbol("p", real=True)
sigma = sympy.Symbol("sigma", positive=True)


class Noise(ABC):
    """The distribution of eta, defined by that of `xi = (eta - mean) / deviation`, with mean 0 and variance 1.

    `weights` defines how eta enters: eta f, eta f1 + (1 - eta) f2, f + eta. A subclass can be analysed and, with one f,
    trained.
    """

    name: ClassVar[str]  # its registered name
    about: ClassVar[str] = ""
    additive: ClassVar[bool] = False  # the last weight multiplies 1, not an f
    normal: ClassVar[bool] = False  # xi is standard normal and can be drawn by any normal generator
    examples: ClassVar[tuple[dict[str, float], ...]] = ()  # values for measurements if the parameter is a symbol
    mean: sympy.Expr
    deviation: sympy.Expr
    value: str = ""  # its parameter as text, "p = 0.2"

    def weights(self, eta: Coefficient) -> tuple[Coefficient, ...]:
        """Return the weight of each right-hand side; if `additive`, the last is added without an f."""
        return (eta,)

    @property
    def branches(self) -> int:
        """The number of right-hand sides f."""
        return len(self.weights(self.mean)) - self.additive

    @property
    def heading(self) -> str:
        """The name, with the parameter if that is a number."""
        return f"{self.name}, {self.value}" if self.value else self.name

    @property
    def depends_on_time(self) -> bool:
        """Whether the distribution depends on time."""
        return t in self.mean.free_symbols | self.deviation.free_symbols

    @abstractmethod
    def moment(self, m: int) -> sympy.Expr:
        """`E xi^m`."""

    @abstractmethod
    def quantile(self, u: Array, time: float = 0.0) -> Array:
        """xi from a uniform u in (0, 1)."""

    @abstractmethod
    def quadrature(self, n: int, time: Time = 0.0) -> tuple[Array, Array]:
        """Points and weights: `E g(xi) = sum_j w_j g(x_j)`, exact for polynomials of degree 2n - 1 at least.

        If the distribution depends on time, the second dimension has one column for each time.
        """

    def __repr__(self) -> str:
        return self.name


class Bernoulli(Noise):
    """`P(eta = 1) = p`, `P(eta = 0) = 1 - p` (Huang et al. 2016). Without a number, p stays a symbol.

    p may depend on time: an expression in `t`, or a function such as `lambda t: 1 - t / 2`, the paper's p(t).
    """

    name: ClassVar[str] = "stochastic_depth"
    about: ClassVar[str] = "eta is 1 with probability p and 0 otherwise (Huang et al. 2016)"
    examples: ClassVar[tuple[dict[str, float], ...]] = ({"p": 0.5}, {"p": 0.2})

    def __init__(self, p: Parameter = p) -> None:
        self.mean = _parameter("p", p, upper=1)
        self.value = _value("p", self.mean)
        self.deviation = sympy.sqrt(self.mean * (1 - self.mean))

    def moment(self, m: int) -> sympy.Expr:
        survive = self.mean
        central = survive * (1 - survive) ** m + (1 - survive) * (-survive) ** m
        return sympy.simplify(central / self.deviation**m)

    def quantile(self, u: Array, time: float = 0.0) -> Array:
        (drop, keep), (chance, _) = self.quadrature(1, time)
        return np.asarray(np.where(u < chance, drop, keep))

    def quadrature(self, n: int, time: Time = 0.0) -> tuple[Array, Array]:
        survive, deviation = np.asarray(number(self.mean, time)), np.asarray(number(self.deviation, time))
        if not ((survive >= 0) & (survive <= 1)).all():
            raise UserError(f"p(t) = {self.mean} leaves [0, 1] in the time span: expected a probability")
        away = np.stack([0 - survive, 1 - survive])
        points = np.divide(away, deviation, out=np.zeros_like(away), where=deviation > 0)  # p(t) = 1: no noise then
        return points, np.stack([1 - survive, survive])


@checked
def falling(end: OpenShare, duration: Positive = 1.0) -> sympy.Expr:
    """`p(t) = 1 - (1 - p_L) t/T`: the linear decay of Huang et al., which the paper's networks take too."""
    return 1 - (1 - sympy.nsimplify(exact(end))) * t / sympy.nsimplify(exact(duration))


class Uniform(Noise):
    """`eta ~ U(0, 1)` in `eta f1 + (1 - eta) f2` (Gastaldi 2017)."""

    name: ClassVar[str] = "shake_shake"
    about: ClassVar[str] = "eta is uniform on (0, 1), and weighs two branches (Gastaldi 2017)"

    def __init__(self) -> None:
        self.mean = sympy.Rational(1, 2)
        self.deviation = 1 / sympy.sqrt(12)

    def weights(self, eta: Coefficient) -> tuple[Coefficient, ...]:
        return eta, 1 - eta

    def moment(self, m: int) -> sympy.Expr:
        return sympy.sqrt(3) ** m / (m + 1) if m % 2 == 0 else sympy.S.Zero

    def quantile(self, u: Array, time: float = 0.0) -> Array:
        return np.asarray((2 * u - 1) * np.sqrt(3))

    def quadrature(self, n: int, time: Time = 0.0) -> tuple[Array, Array]:
        points, weights = np.polynomial.legendre.leggauss(n)
        return points * np.sqrt(3), weights / 2


class _Multiplicative(Noise):
    """`eta = 1 + sigma xi`."""

    examples: ClassVar[tuple[dict[str, float], ...]] = ({"sigma": 0.5},)

    def __init__(self, sigma: Parameter = sigma) -> None:
        self.mean = sympy.S.One
        self.deviation = _parameter("sigma", sigma)
        self.value = _value("sigma", self.deviation)


class Rademacher(_Multiplicative):
    """`eta = 1 + sigma` or `1 - sigma`, equally often: appendix B's Bernoulli variable."""

    name: ClassVar[str] = "rademacher"
    about: ClassVar[str] = "eta is 1 + sigma or 1 - sigma, equally often (appendix B)"

    def moment(self, m: int) -> sympy.Expr:
        return sympy.Integer(1 - m % 2)

    def quantile(self, u: Array, time: float = 0.0) -> Array:
        return np.where(u < 0.5, -1.0, 1.0)

    def quadrature(self, n: int, time: Time = 0.0) -> tuple[Array, Array]:
        return np.array([-1.0, 1.0]), np.array([0.5, 0.5])


class Gaussian(_Multiplicative):
    """`eta ~ N(1, sigma^2)`: the increments are those of Brownian motion."""

    name: ClassVar[str] = "gaussian"
    about: ClassVar[str] = "eta is normal with mean 1 and deviation sigma"
    normal: ClassVar[bool] = True

    def moment(self, m: int) -> sympy.Expr:
        return sympy.factorial2(m - 1) if m % 2 == 0 else sympy.S.Zero

    def quantile(self, u: Array, time: float = 0.0) -> Array:
        from scipy.special import ndtri

        return np.asarray(ndtri(u))

    def quadrature(self, n: int, time: Time = 0.0) -> tuple[Array, Array]:
        points, weights = np.polynomial.hermite_e.hermegauss(n)
        return points, weights / weights.sum()


class Additive(Gaussian):
    """`f + eta` with `eta ~ N(0, sigma^2)`: `X_{n+1} = X_n + dt f(X_n) + sqrt(dt) sigma xi`, with a separate xi for
    each entry of a state. It is in the authors' code, and in a row of table 4 that the paper does not print.
    """

    name: ClassVar[str] = "additive"
    about: ClassVar[str] = "eta is normal with mean 0 and deviation sigma, and is added to f (the authors' code)"
    additive: ClassVar[bool] = True

    def __init__(self, sigma: Parameter = sigma) -> None:
        super().__init__(sigma)
        self.mean = sympy.S.Zero

    def weights(self, eta: Coefficient) -> tuple[Coefficient, ...]:
        return 1, eta


NOISES: Registry[type[Noise]] = Registry("noise")
NoiseClass = TypeVar("NoiseClass", bound=type[Noise])


@checked
def register_noise(name: str) -> Callable[[NoiseClass], NoiseClass]:
    """Class decorator: register a noise under `name`, for analysis, training and the command line."""

    def register(noise: NoiseClass) -> NoiseClass:
        if not (isinstance(noise, type) and issubclass(noise, Noise)):
            raise UserError(f"register_noise({name!r}) on {noise!r}: expected a subclass of Noise")
        NOISES.add(name, noise)
        noise.name = name
        return noise

    return register


for _noise in (Bernoulli, Uniform, Rademacher, Gaussian, Additive):
    register_noise(_noise.name)(_noise)


def list_noises() -> list[str]:
    """The names of the registered noises."""
    return NOISES.names()


@checked
def get_noise(noise: str | Noise, **parameters: Parameter) -> Noise:
    """Return a noise by name, with its parameter: `get_noise("stochastic_depth", p=0.2)`."""
    if isinstance(noise, Noise):
        refuse_options(f"noise {noise}", parameters)
        return noise
    return build(f"noise {noise!r}", NOISES[noise], parameters)


def number(value: sympy.Expr, time: Time = 0.0) -> Time:
    """Return a parameter as a float, at one time or several; raise if it is a symbol."""
    left = value.free_symbols - {t}
    if left:
        raise UserError(f"{min(map(str, left))} is a symbol: sampling needs a number, such as p=0.5 or sigma=0.5")
    if not value.free_symbols:
        return float(value)
    at = np.asarray(time, dtype=float)
    return np.broadcast_to(np.asarray(sympy.lambdify(t, value, "numpy")(at), dtype=float), at.shape)


def _value(name: str, value: sympy.Expr) -> str:
    if value.free_symbols == {t}:
        return f"{name}(t) = {sympy.sstr(value, order='rev-lex')}"
    return "" if value.free_symbols else f"{name} = {float(value):g}"


def _parameter(name: str, value: Parameter, upper: float = float("inf")) -> sympy.Expr:
    value = sympy.sympify(exact(value(t))) if callable(value) and not isinstance(value, sympy.Basic) else value
    if isinstance(value, sympy.Expr) and value.free_symbols:
        return value.subs(sympy.Symbol("t"), t)
    if isinstance(value, bool) or not (isinstance(value, int | float | sympy.Expr) and 0 < value < upper):
        between = f"0 < {name} < {upper}" if np.isfinite(upper) else f"{name} > 0 and finite"
        raise UserError(f"{name} = {value}: expected {between} (the variance must not be 0)")
    return sympy.nsimplify(exact(value), rational=True)
