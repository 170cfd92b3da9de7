"""The order of a scheme: derived with rooted trees, and measured as the slope of the error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepnet.analysis.symbols import exact, vanishes
from stepnet.analysis.trees import defect
from stepnet.arguments import checked
from stepnet.errors import UserError
from stepnet.schemes import Coefficient, Equation, Scheme, from_parts, get_scheme, parts_of, solve

Array = NDArray[np.float64]
Field = Callable[[float, Array], Array]
STEPS = (64, 128, 256, 512)  # for the time span [0, 1]


def order_of_consistency(method: Scheme, equation: Equation) -> int:
    """Return the largest p with a local error of `O(dt^(p+m))` on `mass u^(m) = f(t, u)`, for every smooth system."""
    if (equation.partitioned, equation.split) != (method.equation.partitioned, method.equation.split):
        raise UserError(f"{method.name} solves {method.equation}: its order against {equation} is not defined")
    if vanishes(exact(equation.mass)):  # lm at k = -1: consistent with no equation of first order
        return 0
    limit = equation.derivative
    while (wrong := defect(method, equation, limit)) is None:
        limit += 1
    return max(0, wrong - equation.derivative)


@dataclass(frozen=True)
class Convergence:
    """The errors at the end of the time span for a sequence of step sizes, and the slope of their logarithms."""

    dt: Array
    error: Array
    slope: float


@checked
def convergence(scheme: str | Scheme, steps: Sequence[int] = STEPS, **parameters: Coefficient) -> Convergence:
    """Solve the scheme's equation with several step sizes and compare with DOP853.

    The system is nonlinear and non-autonomous (linear, or a partitioned pair, if that is what the scheme
    solves). The slope is a least-squares fit to the errors well above rounding.
    """
    method = get_scheme(scheme, **parameters)
    if getattr(method.k, "shape", ()):
        raise UserError(f"k of shape {tuple(method.k.shape)}: expected one number, since one slope is fitted")
    fs, start = _problem(method.equation)
    f, u0 = from_parts(fs), from_parts(start)
    runs = [solve(f, u0, (0.0, 1.0), n, method).u for n in steps]  # first: it may raise
    reference = _reference(method, fs, start)
    sizes, errors = [1 / n for n in steps], []
    for u in runs:
        last = np.concatenate([part[-1] for part in parts_of(u)])
        errors.append(float(np.abs(last - reference).max()))
    clear = [(h, e) for h, e in zip(sizes, errors, strict=True) if e > 1e-11]
    if len(clear) < 2:
        raise UserError(f"steps = {tuple(steps)}: fewer than two errors of {method.name} are above rounding")
    log_dt, log_error = np.log(np.array(clear)).T
    slope = float(np.polyfit(log_dt, log_error, 1)[0])
    return Convergence(np.array(sizes), np.array(errors), slope)


def _problem(equation: Equation) -> tuple[tuple[Field, ...], tuple[Array, ...]]:
    """Return a smooth problem with bounded derivatives, so that no scheme blows up, whatever its mass."""
    u0 = np.array([0.7, -0.4, 0.3])
    matrix = np.array([[-0.6, 1.1, 0.2], [-0.9, -0.3, 0.5], [0.4, -0.7, -0.8]])

    def linear(t: float, u: Array) -> Array:
        return np.asarray(matrix @ u)

    def f(t: float, u: Array) -> Array:
        return np.asarray(matrix @ np.sin(2 * u) + np.sin(u[::-1]) * np.cos(u) * np.cos(3 * t) + np.sin(2 * t))

    def g(t: float, x: Array) -> Array:
        return np.asarray(np.cos(x[::-1]) * x - np.sin(3 * t))

    if equation.partitioned or equation.split:
        return (f, g), (u0, u0[::-1].copy())[: 1 + equation.partitioned]
    return (linear if equation.linear else f,), (u0,)


def _reference(method: Scheme, fs: tuple[Field, ...], start: tuple[Array, ...]) -> Array:
    from scipy.integrate import solve_ivp

    equation, size, mass = method.equation, len(start[0]), float(method.equation.mass)
    if equation.partitioned:
        y0 = np.concatenate(start)

        def system(t: float, y: Array) -> Array:
            return np.concatenate([fs[0](t, y[size:]), fs[1](t, y[:size])]) / mass
    else:
        velocity = np.broadcast_to(method.velocity, start[0].shape)
        y0 = np.concatenate([start[0], *([velocity] * (equation.derivative - 1))])

        def system(t: float, y: Array) -> Array:
            return np.concatenate([y[size:], sum(f(t, y[:size]) for f in fs) / mass])

    end: Array = solve_ivp(system, (0.0, 1.0), y0, method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    return end if equation.partitioned else end[:size]
