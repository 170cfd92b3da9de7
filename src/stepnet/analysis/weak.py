"""Weak convergence, measured: how fast the moments of a stochastic network approach those of its equation.

    error(dt) = E X_N^m - E X(T)^m,    the weak order is the slope of log |error| against log dt

For a linear f everything is exact. The state Z (X itself, or the pair X, Y) follows `dZ = A Z dt + B Z dB`, so the
tensor power of its m-th moments follows a linear equation, whose generator is `sum_i A_i + sum_{i<j} B_i B_j`; and the
scheme multiplies Z by a random matrix M, so its moments are multiplied by `E M⊗…⊗M`, a finite sum over the points of
the noise's quadrature. An additive noise makes both affine: the constant 1 is then a part of Z. Monte Carlo
gives the same with a confidence interval; for a nonlinear f it is compared with torchsde.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import sympy
from annotated_types import Ge, Le

from stepnet.analysis.sde import Function, right_hand_sides, stochastic_equation, stochastic_step, with_constant
from stepnet.arguments import Count, Positive, Seed, checked
from stepnet.errors import UserError
from stepnet.extras import import_extra
from stepnet.schemes import Scheme, State, get_scheme
from stepnet.schemes.noises import Array, Noise, Parameter, Time, get_noise, number, t

# Powers of the summed noise that serve as control variates. With a fourth, most of the remaining variance would come
# from rare sums, and the interval, estimated from the sums that were drawn, would be too narrow; so it would be with
# fewer paths.
CONTROLS = 3
Samples = Annotated[int, Ge(2000), Le(10**8)]
CONFIDENCE = 1.96  # standard errors on each side: 95 %
SMALL_STEPS = tuple(2**n for n in range(12, 17))  # where moments are exact
LARGE_STEPS = tuple(2**n for n in range(3, 7))  # where the error is larger than that of sampling


@checked
@dataclass(frozen=True)
class Problem:
    """The problem to solve: `f(X) = rate X` from `X(0) = start` to `time`.

    Shake-shake has a rate for each branch. `f` replaces the linear right-hand sides by any functions. With a
    `damping` g it is the paper's process of section 3.2, `dX = Y dt, dY = p f dt + sqrt(p(1-p)) f dB - g Y dt`.
    """

    rates: tuple[float, ...] = (-0.4, -0.8)  # at -5/12 the error of E X^3, p = 0.2, has no second term, dt
    f: tuple[Function, ...] | None = None
    start: float = 1.0
    time: Positive = 1.0
    scheme: str | Scheme = "euler"
    damping: float | None = None

    @property
    def functions(self) -> tuple[Function, ...]:
        """f, or f1 and f2."""
        return self.f or tuple(partial(operator.mul, rate) for rate in self.rates)


@dataclass(frozen=True)
class WeakError:
    """`E X_N^m - E X(T)^m`, within `± interval` with 95 % confidence (0 where nothing was sampled)."""

    dt: float
    error: float
    interval: float


@dataclass(frozen=True)
class WeakOrder:
    """The slope of log |error| against log dt, within `± interval` with 95 % confidence."""

    slope: float
    interval: float
    errors: tuple[WeakError, ...]

    def __str__(self) -> str:
        if not self.interval:
            return f"{self.slope:.3f}"
        return f"{self.slope:.3f} ± {math.ceil(1000 * self.interval) / 1000:.3f}"  # rounded up


@checked
def weak_error(
    noise: str | Noise,
    steps: Count,
    moment: Count = 1,
    problem: Problem | None = None,
    samples: Samples | None = None,
    seed: Seed = 0,
    **parameters: Parameter,
) -> WeakError:
    """Return the error of one moment after `steps` steps: exact for linear f, or sampled with `samples` paths."""
    noise, problem = get_noise(noise, **parameters), problem or Problem()
    _check(noise, problem)
    dt = problem.time / steps
    if samples is None:
        if problem.f is not None:
            raise UserError("a nonlinear f has no exact moments: give the number of samples, such as samples=100_000")
        return WeakError(dt, scheme_moment(noise, steps, moment, problem) - exact_moment(noise, moment, problem), 0.0)
    moment_of_scheme, deviation = sampled_moment(noise, steps, moment, problem, samples, seed)
    if problem.f is None:
        reference, uncertainty = exact_moment(noise, moment, problem), 0.0
    else:
        reference, uncertainty = torchsde_moment(noise, moment, problem, samples, seed)
    return WeakError(dt, moment_of_scheme - reference, CONFIDENCE * float(np.hypot(deviation, uncertainty)))


@checked
def weak_order(
    noise: str | Noise,
    moment: Count = 1,
    problem: Problem | None = None,
    steps: Sequence[Count] | None = None,
    samples: Samples | None = None,
    seed: Seed = 0,
    **parameters: Parameter,
) -> WeakOrder:
    """Measure the weak order: `weak_order("stochastic_depth", p=0.2, moment=3)`.

    Exact moments are compared at SMALL_STEPS by default, Monte Carlo at LARGE_STEPS. The points are weighted by dt^2:
    the sampling error hardly depends on dt, so its share in log |error| is smaller the larger the error is.
    """
    if steps is None:
        steps = SMALL_STEPS if samples is None else LARGE_STEPS
    if len(steps) < 2:
        raise UserError(f"steps = {tuple(steps)}: a slope needs two numbers of steps or more")
    errors = tuple(
        weak_error(noise, n, moment, problem, samples, seed + index, **parameters) for index, n in enumerate(steps)
    )
    unclear = [each for each in errors if abs(each.error) <= max(each.interval, 1e-13)]
    if unclear:
        raise UserError(
            f"the error at dt = {unclear[0].dt:g} is {unclear[0].error:.1e} ± {unclear[0].interval:.1e}: "
            "not larger than its uncertainty; take more samples or larger steps"
        )
    dt = np.array([each.dt for each in errors])
    y = np.log([abs(each.error) for each in errors])
    spread = np.array([each.interval / abs(each.error) for each in errors])  # of log |error|
    centred = np.log(dt) - np.average(np.log(dt), weights=dt**2)
    influence = dt**2 * centred / np.sum(dt**2 * centred**2)
    return WeakOrder(float(influence @ y), float(np.sqrt(np.sum((influence * spread) ** 2))), errors)


def exact_moment(noise: Noise, moment: int, problem: Problem) -> float:
    """`E X(T)^m` of the linear stochastic equation: by the exponential of its moments' generator, or along p(t)."""
    equation, start = linear_equation(noise, problem), _power(_start(noise, problem), moment)
    size = len(_start(noise, problem))

    def generator(time: float) -> Array:
        drift, diffusion = equation(time)
        total = np.zeros((size**moment, size**moment))
        for j in range(moment):
            total += _kronecker({j: drift}, moment, size)
            for i in range(j):
                total += _kronecker({i: diffusion, j: diffusion}, moment, size)
        return total

    if noise.depends_on_time:
        from scipy.integrate import solve_ivp

        run = solve_ivp(
            lambda time, moments: generator(time) @ moments,
            (0.0, problem.time),
            start,
            method="DOP853",
            rtol=1e-13,
            atol=1e-15,
        )
        return float(run.y[0, -1])
    from scipy.linalg import expm

    return float((expm(problem.time * generator(0.0)) @ start)[0])


def scheme_moment(noise: Noise, steps: int, moment: int, problem: Problem) -> float:
    """`E X_N^m` of the scheme, without sampling: the product of all `E M⊗…⊗M`, or `(E M⊗…⊗M)^N` of one.

    M is one step applied to the unit vectors, for all times in one call if p depends on time.
    """
    step, unit, dt = stepper(noise, problem), np.eye(len(_start(noise, problem))), problem.time / steps
    times: Array = dt * np.arange(steps, dtype=np.float64) if noise.depends_on_time else np.zeros(1)
    points, weights = noise.quadrature(moment * get_scheme(problem.scheme).stages + 1, times)
    transfer = np.zeros(1)
    for xi, weight in zip(points, weights, strict=True):
        matrices = step(unit[..., None], xi, dt, times)  # one for each time, along the last dimension
        power = np.ones((1, 1, 1))
        for _ in range(moment):
            product = np.einsum("ijn,kln->ikjln", power, matrices)
            power = product.reshape(len(power) * len(unit), -1, product.shape[-1])
        transfer = transfer + weight * power
    moments = _power(_start(noise, problem), moment)
    if not noise.depends_on_time:
        return float((np.linalg.matrix_power(transfer[..., 0], steps) @ moments)[0])
    for matrix in np.moveaxis(transfer, -1, 0):
        moments = matrix @ moments
    return float(moments[0])


def sampled_moment(
    noise: Noise, steps: int, moment: int, problem: Problem, samples: int, seed: int = 0
) -> tuple[float, float]:
    """`E X_N^m` by Monte Carlo, and its standard error.

    The powers of `S = (xi_1 + … + xi_N) / sqrt(N)` serve as control variates: their means are known from the noise's
    moments, and X_N is nearly a function of S. The coefficients for each half of the paths are
    fitted to the other half: fitted to the same paths, they would underestimate the variance due to rare sums.
    """
    generator, step = np.random.default_rng(seed), stepper(noise, problem)
    state = np.repeat(_start(noise, problem)[:, None], samples, axis=1)
    total = np.zeros(samples)
    for n in range(steps):
        time = n * problem.time / steps
        xi = noise.quantile(generator.random(samples), time)
        state = step(state, xi, problem.time / steps, time)
        total += xi / np.sqrt(steps)
    means = _sum_moments(noise, steps, CONTROLS, problem.time)
    controls = np.stack([total**m - means[m] for m in range(1, CONTROLS + 1)], axis=1)
    values = state[0] ** moment
    corrected, halves = np.empty(samples), np.array_split(np.arange(samples), 2)
    for half, other in (halves, halves[::-1]):
        fitted = np.column_stack([np.ones(len(other)), controls[other]])
        _, *coefficients = np.linalg.lstsq(fitted, values[other], rcond=None)[0]
        corrected[half] = values[half] - controls[half] @ coefficients
    return float(corrected.mean()), float(corrected.std() / np.sqrt(samples))


def torchsde_moment(
    noise: Noise, moment: int, problem: Problem, samples: int, seed: int = 0, steps: int = 64
) -> tuple[float, float]:
    """`E X(T)^m` of the stochastic equation by torchsde with small steps, and its standard error."""
    torchsde = import_extra("torchsde")
    import torch

    equation, names = stochastic_equation(noise), right_hand_sides(noise)

    def weighted(part: sympy.Expr) -> Function:
        terms = [(number(sympy.diff(part, name)), f) for name, f in zip(names, problem.functions, strict=False)]
        constant = float(number(part.subs(dict.fromkeys(names, 0))))
        return lambda x: sum(weight * f(x) for weight, f in terms) + torch.full_like(x, constant)

    drift, diffusion = weighted(equation.drift), weighted(equation.diffusion)

    class Equation(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def f(self, t: State, x: State) -> State:
            return drift(x)

        def g(self, t: State, x: State) -> State:
            return diffusion(x)

    start = torch.full((samples, 1), problem.start, dtype=torch.float64)
    times = torch.tensor([0.0, problem.time], dtype=torch.float64)
    brownian = torchsde.BrownianInterval(
        0.0, problem.time, size=(samples, 1), dtype=torch.float64, entropy=seed, levy_area_approximation="space-time"
    )
    with torch.no_grad():
        end = torchsde.sdeint(Equation(), start, times, bm=brownian, method="srk", dt=problem.time / steps)[-1]
    powers = end[:, 0] ** moment
    return float(powers.mean()), float(powers.std() / samples**0.5)


def linear_equation(noise: Noise, problem: Problem) -> Callable[[float], Sequence[Array]]:
    """Return A and B in `dZ = A Z dt + B Z dB` as functions of time; for `Z` see `_start`."""
    rates = dict(zip(right_hand_sides(noise), problem.rates, strict=False))
    state, *rows = stochastic_equation(noise, problem.damping).linear(rates)
    if noise.additive:
        one, zero = sympy.Symbol("one"), dict.fromkeys(state, 0)
        rows = [[*(part + (one - 1) * part.subs(zero) for part in row), sympy.S.Zero] for row in rows]
        state = [*state, one]
    matrices = [sympy.Matrix(part).jacobian(state) for part in rows]
    fixed = [np.array([number(a) for a in matrix], dtype=float).reshape(matrix.shape) for matrix in matrices]
    if not noise.depends_on_time:
        return lambda time: fixed
    at = sympy.lambdify(t, matrices, "numpy")
    return lambda time: [np.asarray(matrix, dtype=float) for matrix in at(time)]


def stepper(noise: Noise, problem: Problem) -> Callable[[Array, Array, float, Time], Array]:
    """Return `step(Z, xi, dt, time)` for the rows of Z, computed by `advance`."""
    damping, scheme = problem.damping, get_scheme(problem.scheme)

    def step(state: Array, xi: Array, dt: float, time: Time) -> Array:
        constant = [state[-1]] if noise.additive else []
        fs = with_constant(noise, problem.functions, *constant)
        new = stochastic_step(noise, fs, state[: 1 if damping is None else 2], xi, dt, damping, scheme, time)
        return np.stack(np.broadcast_arrays(*new, *constant))

    return step


def _sum_moments(noise: Noise, n: int, highest: int, duration: float) -> list[float]:
    """`E S^m` for m = 0 … highest: the product of the terms' generating series `sum_m E xi^m t^m / m!`."""
    times: Array = duration / n * np.arange(n, dtype=np.float64) if noise.depends_on_time else np.zeros(n)
    points, weights = noise.quadrature(highest + 1, times)
    series = [(weights * points**m).sum(axis=0) / math.factorial(m) for m in range(highest + 1)]
    power = np.ones(1)
    for row in np.broadcast_to(np.stack(series, axis=-1), (n, highest + 1)):
        power = np.convolve(power, row)[: highest + 1]
    return [float(c) * math.factorial(m) / n ** (m / 2) for m, c in enumerate(power)]


def _start(noise: Noise, problem: Problem) -> Array:
    """Return Z(0): X(0), Y(0) = 0 if there is a Y, and 1 if the noise is additive."""
    return np.array([problem.start, *([] if problem.damping is None else [0.0]), *([1.0] if noise.additive else [])])


def _power(matrix: Array, m: int) -> Array:
    """The m-fold Kronecker product."""
    return _kronecker(dict.fromkeys(range(m), matrix), m, 1)


def _kronecker(factors: dict[int, Array], m: int, size: int) -> Array:
    """The m-fold Kronecker product of the `factors` by position, with the identity elsewhere."""
    product = np.ones(1)
    for i in range(m):
        product = np.asarray(np.kron(product, factors.get(i, np.eye(size))), dtype=np.float64)
    return product


def _check(noise: Noise, problem: Problem) -> None:
    values, kind = (problem.rates, "rates") if problem.f is None else (problem.f, "f")
    if not isinstance(values, tuple) or len(values) < noise.branches:
        raise UserError(f"{kind} = {values!r}: expected a tuple of {noise.branches}, one for each branch of {noise}")
    scheme = get_scheme(problem.scheme)
    if scheme.steps > 1 or scheme.equation.partitioned:
        raise UserError(f"scheme {scheme.name!r}: expected a one-step scheme of X; LM's process is Problem(damping=g)")
    if noise.depends_on_time and problem.f is not None:
        raise UserError("p(t) with f: the comparison with torchsde needs a constant p")
    if problem.damping is not None and problem.f is not None:
        raise UserError("damping with f: the process of section 3.2 is solved for linear f only; give rates")
