"""The order of a scheme: found by rooted trees, and measured as the slope of the error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from stepnet.analysis.symbols import exact, subject
from stepnet.analysis.trees import defect, vanishes
from stepnet.errors import UserError
from stepnet.schemes import Equation, Scheme, get_scheme, solve

Array = Any


def order(scheme: str | Scheme, against: Equation | None = None) -> int:
    """The largest p with a local error of `O(dt^(p+m))` on `mass u^(m) = f(t, u)`, for every smooth system.

    The equation is the scheme's own, or the one given: `order("lm", against=Equation())` is 0, since `lm` does not
    solve `u' = f`. A trainable k stays a symbol, and the order is that of almost every k. Order 0: inconsistent.
    """
    method = subject(scheme)
    equation = against or method.equation
    if equation.partitioned != method.equation.partitioned:
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


def convergence(scheme: str | Scheme, steps: Sequence[int] = (64, 128, 256, 512), **parameters: Any) -> Convergence:
    """Solve the equation that the scheme states with several step sizes, and compare with DOP853.

    The system is nonlinear and non-autonomous (linear, or a partitioned pair, where the scheme asks for that). The
    slope is a least-squares fit over the errors that stand clear of rounding.
    """
    method = get_scheme(scheme, **parameters)
    f, u0 = _problem(method.equation)
    runs = [solve(f, u0, (0.0, 1.0), n, method).u for n in steps]  # first: it tells what cannot be solved
    wanted = _reference(method, f, u0)
    sizes, errors = [1 / n for n in steps], []
    for u in runs:
        last = np.concatenate([part[-1] for part in u]) if isinstance(u, tuple) else u[-1]
        errors.append(float(np.abs(last - wanted).max()))
    clear = [(h, e) for h, e in zip(sizes, errors, strict=True) if e > 1e-11]
    if len(clear) < 2:
        raise UserError(f"steps = {tuple(steps)}: fewer than two errors of {method.name} stand clear of rounding")
    log_dt, log_error = np.log(np.array(clear)).T
    slope = float(np.polyfit(log_dt, log_error, 1)[0])
    return Convergence(np.array(sizes), np.array(errors), slope)


def empirical_order(scheme: str | Scheme, steps: Sequence[int] = (64, 128, 256, 512), **parameters: Any) -> float:
    """The slope of log error against log dt, on the equation that the scheme states."""
    return convergence(scheme, steps, **parameters).slope


def _problem(equation: Equation) -> tuple[Any, Any]:
    """Smooth and of bounded slope, so that no scheme blows up, whatever its mass makes of the time span."""
    u0 = np.array([0.7, -0.4, 0.3])
    matrix = np.array([[-0.6, 1.1, 0.2], [-0.9, -0.3, 0.5], [0.4, -0.7, -0.8]])
    if equation.linear:
        return (lambda u: matrix @ u), u0

    def f(t: float, u: Array) -> Array:
        return matrix @ np.sin(2 * u) + np.sin(u[::-1]) * np.cos(u) * np.cos(3 * t) + np.sin(2 * t)

    if equation.partitioned:
        return (f, lambda t, x: np.cos(x[::-1]) * x - np.sin(3 * t)), (u0, u0[::-1].copy())
    return f, u0


def _reference(method: Scheme, f: Any, u0: Any) -> Array:
    equation = method.equation
    mass = float(equation.mass)
    if equation.partitioned:
        (first, second), size = f, len(u0[0])
        start = np.concatenate(u0)

        def system(t: float, y: Array) -> Array:
            return np.concatenate([first(t, y[size:]), second(t, y[:size])])
    else:
        size = len(u0)
        velocity = np.broadcast_to(method.velocity, u0.shape)
        start = np.concatenate([u0, *([velocity] * (equation.derivative - 1))])

        def system(t: float, y: Array) -> Array:
            value = f(y[:size]) if equation.linear else f(t, y[:size])
            return np.concatenate([y[size:], value / mass])

    found = solve_ivp(system, (0.0, 1.0), start, method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    return found if equation.partitioned else found[:size]
