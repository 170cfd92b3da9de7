"""Weak convergence, measured: how fast the moments of a stochastic network approach those of its equation.

    error(dt) = E X_N^m - E X(T)^m,    the weak order is the slope of log |error| against log dt

For a linear f everything is exact. The state Z (X itself, or the pair X, Y) follows `dZ = A Z dt + B Z dB`, so the
tensor power of its m-th moments follows a linear equation, whose generator is `sum_i A_i + sum_{i<j} B_i B_j`; and the
scheme multiplies Z by a random matrix M, so its moments are multiplied by `E M⊗…⊗M`, a finite sum over the points of
the noise's quadrature. Monte Carlo stands beside that with a confidence interval; for a nonlinear f it is compared
with torchsde.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import sympy

from stepnet.analysis.noise_laws import Array, Noise, Parameter, get_noise, number
from stepnet.analysis.stochastic import Function, gated, right_hand_sides, stochastic_equation, stochastic_step
from stepnet.errors import UserError, check_count
from stepnet.schemes import LM, Point, Scheme, advance, get_scheme
from stepnet.schemes.arithmetic import Coefficient, State

# Powers of the summed noise that serve as control variates. A fourth would leave to rare sums most of the variance that
# remains, and an interval that knows only the sums that were drawn would be too narrow. So would one of fewer paths.
CONTROLS = 3
LEAST_SAMPLES = 2000
CONFIDENCE = 1.96  # standard errors on each side: 95 %
SMALL_STEPS = tuple(2**n for n in range(12, 17))  # where moments are exact
LARGE_STEPS = tuple(2**n for n in range(3, 7))  # where the error stands clear of the sampling


@dataclass(frozen=True)
class Problem:
    """What is solved: `f(X) = rate X` from `X(0) = start` to `time`.

    Shake-shake has a rate for each branch. `f` replaces the linear right-hand sides by functions of one's own. With a
    `damping` g it is the paper's process of section 3.2, `dX = Y dt, dY = p f dt + sqrt(p(1-p)) f dB - g Y dt`.
    """

    rates: tuple[float, ...] = (-0.4, -0.8)  # at -5/12 the error of E X^3, p = 0.2, has no second term, dt
    f: tuple[Function, ...] | None = None
    start: float = 1.0
    time: float = 1.0
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
        return f"{self.slope:.3f} ± {math.ceil(1000 * self.interval) / 1000:.3f}"  # never narrower than it is


def weak_error(
    noise: str | Noise,
    steps: int,
    moment: int = 1,
    problem: Problem | None = None,
    samples: int | None = None,
    seed: int = 0,
    **parameters: Parameter,
) -> WeakError:
    """The error of one moment after `steps` steps: exact for a linear f, or by Monte Carlo with `samples` paths."""
    noise, problem = get_noise(noise, **parameters), problem or Problem()
    _check(noise, steps, moment, problem, samples)
    dt = problem.time / steps
    if samples is None:
        if problem.f is not None:
            raise UserError("a nonlinear f has no exact moments: give the number of samples, such as samples=100_000")
        return WeakError(dt, scheme_moment(noise, steps, moment, problem) - exact_moment(noise, moment, problem), 0.0)
    found, deviation = sampled_moment(noise, steps, moment, problem, samples, seed)
    if problem.f is None:
        wanted, uncertainty = exact_moment(noise, moment, problem), 0.0
    else:
        wanted, uncertainty = torchsde_moment(noise, moment, problem, samples, seed)
    return WeakError(dt, found - wanted, CONFIDENCE * float(np.hypot(deviation, uncertainty)))


def weak_order(
    noise: str | Noise,
    moment: int = 1,
    problem: Problem | None = None,
    steps: Sequence[int] | None = None,
    samples: int | None = None,
    seed: int = 0,
    **parameters: Parameter,
) -> WeakOrder:
    """The measured weak order: `weak_order("stochastic_depth", p=0.2, moment=3)`.

    Exact moments are compared at SMALL_STEPS unless told, Monte Carlo at LARGE_STEPS. The points are weighted by dt^2:
    what is uncertain by sampling hardly depends on dt, and weighs the less in log |error| the larger the error is.
    """
    if steps is None:
        steps = SMALL_STEPS if samples is None else LARGE_STEPS
    if len(steps) < 2:
        raise UserError(f"steps = {tuple(steps)}: a slope needs two numbers of steps or more")
    errors = tuple(
        weak_error(noise, n, moment, problem, samples, seed + index, **parameters) for index, n in enumerate(steps)
    )
    unclear = [found for found in errors if abs(found.error) <= max(found.interval, 1e-13)]
    if unclear:
        raise UserError(
            f"the error at dt = {unclear[0].dt:g} is {unclear[0].error:.1e} ± {unclear[0].interval:.1e}: "
            "not clear of what is uncertain in it; take more samples or larger steps"
        )
    dt = np.array([found.dt for found in errors])
    y = np.log([abs(found.error) for found in errors])
    spread = np.array([found.interval / abs(found.error) for found in errors])  # of log |error|
    centred = np.log(dt) - np.average(np.log(dt), weights=dt**2)
    influence = dt**2 * centred / np.sum(dt**2 * centred**2)
    return WeakOrder(float(influence @ y), float(np.sqrt(np.sum((influence * spread) ** 2))), errors)


def exact_moment(noise: Noise, moment: int, problem: Problem) -> float:
    """`E X(T)^m` of the linear stochastic equation, by the exponential of its moments' generator."""
    from scipy.linalg import expm

    drift, diffusion = linear_equation(noise, problem)
    size = len(drift)
    generator = np.zeros((size**moment, size**moment))
    for j in range(moment):
        generator += _kronecker({j: drift}, moment, size)
        for i in range(j):
            generator += _kronecker({i: diffusion, j: diffusion}, moment, size)
    return float((expm(problem.time * generator) @ _power(_start(problem), moment))[0])


def scheme_moment(noise: Noise, steps: int, moment: int, problem: Problem) -> float:
    """`E X_N^m` of the scheme itself, with no sampling: `(E M⊗…⊗M)^N`, where one step on the unit vectors gives M."""
    step, unit = stepper(noise, problem), np.eye(len(_start(problem)))
    stages = get_scheme(problem.scheme).stages
    points, weights = noise.quadrature(moment * stages + 1)
    transfer = sum(
        weight * _power(step(unit, xi, problem.time / steps), moment)
        for xi, weight in zip(points, weights, strict=True)
    )
    return float((np.linalg.matrix_power(transfer, steps) @ _power(_start(problem), moment))[0])


def sampled_moment(
    noise: Noise, steps: int, moment: int, problem: Problem, samples: int, seed: int = 0
) -> tuple[float, float]:
    """`E X_N^m` by Monte Carlo, and its standard error.

    The powers of `S = (xi_1 + … + xi_N) / sqrt(N)` serve as control variates: their means are known from the noise's
    moments, and X_N is nearly a function of S. Each half of the paths takes the coefficients that fit the other half:
    fitted to themselves, the few rare sums that were drawn would look better known than they are.
    """
    generator, step = np.random.default_rng(seed), stepper(noise, problem)
    state = np.repeat(_start(problem)[:, None], samples, axis=1)
    total = np.zeros(samples)
    for _ in range(steps):
        xi = noise.quantile(generator.random(samples))
        state = step(state, xi, problem.time / steps)
        total += xi / np.sqrt(steps)
    means = _sum_moments(noise, steps, CONTROLS)
    controls = np.stack([total**m - means[m] for m in range(1, CONTROLS + 1)], axis=1)
    values = state[0] ** moment
    corrected, halves = np.empty(samples), np.array_split(np.arange(samples), 2)
    for own, other in (halves, halves[::-1]):
        fitted = np.column_stack([np.ones(len(other)), controls[other]])
        _, *coefficients = np.linalg.lstsq(fitted, values[other], rcond=None)[0]
        corrected[own] = values[own] - controls[own] @ coefficients
    return float(corrected.mean()), float(corrected.std() / np.sqrt(samples))


def torchsde_moment(
    noise: Noise, moment: int, problem: Problem, samples: int, seed: int = 0, steps: int = 64
) -> tuple[float, float]:
    """`E X(T)^m` of the stochastic equation by torchsde with small steps, and its standard error."""
    try:
        import torch
        import torchsde
    except ImportError:
        raise UserError("a nonlinear f is compared with torchsde, which is missing: pip install torchsde") from None
    equation, names = stochastic_equation(noise), right_hand_sides(noise)

    def weighted(part: sympy.Expr) -> Function:
        terms = [(number(sympy.diff(part, name)), f) for name, f in zip(names, problem.functions, strict=False)]
        return lambda x: sum(weight * f(x) for weight, f in terms)

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


def linear_equation(noise: Noise, problem: Problem) -> tuple[Array, Array]:
    """A and B in `dZ = A Z dt + B Z dB`."""
    equation = stochastic_equation(noise)
    rates = dict(zip(right_hand_sides(noise), problem.rates, strict=False))
    drift, diffusion = (number(part.subs(rates)) for part in (equation.drift, equation.diffusion))
    if problem.damping is None:
        return np.array([[drift]]), np.array([[diffusion]])
    return np.array([[0.0, 1.0], [drift, -problem.damping]]), np.array([[0.0, 0.0], [diffusion, 0.0]])


def stepper(noise: Noise, problem: Problem) -> Callable[[Array, Array | float, float], Array]:
    """`step(Z, xi, dt)` for the rows of Z: X, or X and Y. It goes through the scheme's own `advance`."""
    if problem.damping is not None:
        return lambda state, xi, dt: np.stack(
            damped_step(noise, problem.functions, (state[0], state[1]), xi, dt, problem.damping)
        )
    scheme = get_scheme(problem.scheme)
    return lambda state, xi, dt: np.stack([stochastic_step(noise, problem.functions, state[0], xi, dt, scheme)])


def damped_step(
    noise: Noise, fs: tuple[Function, ...], state: tuple[State, State], xi: State, dt: Coefficient, damping: Coefficient
) -> tuple[State, State]:
    """The process of section 3.2, which is the LM scheme: `Y_{n+1} = (X_{n+1} - X_n) / dt`, and

        Y_{n+1} - Y_n = dt gate f(X_n) - g Y_n dt,

    that is `X_{n+1} = (2 - g dt) X_n - (1 - g dt) X_{n-1} + dt^2 gate f(X_n)`: LM with `k = g dt - 1`, step dt^2.
    (The paper prints `+ g Y dt` and from it `(2 + g) X_n - (1 + g) X_{n-1}`, against its own `Y' = f - g Y`.)
    """
    x, y = state
    rhs, gate = gated(noise, fs, xi, dt)
    k = damping * dt - 1
    new = advance(LM(k), (Point(x, rhs), Point(x - dt * y)), dt**2, k, gate)
    return new, (new - x) / dt


def _sum_moments(noise: Noise, n: int, highest: int) -> list[float]:
    """`E S^m` for m = 0 … highest: the generating series `sum_m E xi^m t^m / m!` of one term, to the power n."""
    series = [number(noise.moment(m)) / math.factorial(m) for m in range(highest + 1)]
    power = np.ones(1)
    for _ in range(n):
        power = np.convolve(power, series)[: highest + 1]
    return [float(c) * math.factorial(m) / n ** (m / 2) for m, c in enumerate(power)]


def _start(problem: Problem) -> Array:
    """X(0), and Y(0) = 0 where there is a Y."""
    return np.array([problem.start] if problem.damping is None else [problem.start, 0.0])


def _power(matrix: Array, m: int) -> Array:
    """The m-fold Kronecker product."""
    return _kronecker(dict.fromkeys(range(m), matrix), m, 1)


def _kronecker(factors: dict[int, Array], m: int, size: int) -> Array:
    """The m-fold Kronecker product of the given factors, with the identity in the other places."""
    product = np.ones(1)
    for i in range(m):
        product = np.asarray(np.kron(product, factors.get(i, np.eye(size))), dtype=np.float64)
    return product


def _check(noise: Noise, steps: int, moment: int, problem: Problem, samples: int | None) -> None:
    check_count("steps", steps)
    check_count("moment", moment)
    if not (math.isfinite(problem.time) and problem.time > 0):
        raise UserError(f"time = {problem.time!r}: expected a positive finite number, so that dt > 0")
    if samples is not None:
        check_count("samples", samples, LEAST_SAMPLES)
    given, kind = (problem.rates, "rates") if problem.f is None else (problem.f, "f")
    if not isinstance(given, tuple) or len(given) < noise.branches:
        raise UserError(f"{kind} = {given!r}: expected a tuple of {noise.branches}, one for each branch of {noise}")
    scheme = get_scheme(problem.scheme)
    if scheme.steps > 1 or scheme.equation.partitioned:
        raise UserError(f"scheme {scheme.name!r}: expected a one-step scheme of X; LM's process is Problem(damping=g)")
    if problem.damping is not None and problem.f is not None:
        raise UserError("damping with a function f of one's own: the process of section 3.2 is solved for a linear f")
