"""`stepnet.solve`: march a scheme on any right-hand side and any array."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stepnet.arguments import Count, checked
from stepnet.errors import UserError
from stepnet.schemes.arithmetic import Coefficient, State, from_parts, is_finite, is_tensor, parts_of
from stepnet.schemes.core import RightHandSide, RightHandSides, Scheme, march
from stepnet.schemes.scheme_registry import get_scheme

Field = Callable[..., State]  # f(u), or f(t, u)


class Trajectory(NamedTuple):
    """The times `t_0 … t_N` and the states `u_0 … u_N`, stacked along a new first dimension (a pair: each part)."""

    t: State
    u: State


@checked
def solve(
    f: Field | tuple[Field, ...],
    u0: State,
    t_span: tuple[float, float],
    steps: Count,
    scheme: str | Scheme = "rk4",
    **parameters: Coefficient | str | Scheme,
) -> Trajectory:
    """March `scheme` from `u0` over `t_span` in `steps` equal steps.

    `f` is `f(u)`, or `f(t, u)` when it has two parameters without a default; for a partitioned system it is a pair
    `(f, g)` and `u0` a pair `(X, Y)`, for a splitting of `u' = f + g` the pair of its parts. States may be numpy arrays
    or torch tensors of any shape, real or complex; with tensors the result is differentiable. The equation solved is
    that of the scheme, `get_scheme("lm", k=-0.5).equation`.
    """
    method = get_scheme(scheme, **parameters)
    start, end = map(float, t_span)
    if not math.isfinite(end - start) or start == end:
        raise UserError(f"t_span = {t_span!r}: expected two different finite numbers, a finite time apart")
    u0 = _as_state(u0)
    _check_equation(method, f, u0)
    _check_kinds(method, u0)
    dt = (end - start) / int(steps)
    timed = [(part, _takes_time(part)) for part in parts_of(f)]

    def right_hand_sides(n: int) -> RightHandSides:
        return from_parts([_right_hand_side(part, takes_time, start + n * dt, dt) for part, takes_time in timed])

    states = [u0]
    for n, y in enumerate(march(method, map(right_hand_sides, range(int(steps))), method.enter(u0), dt)):
        _check_finite(y, method, n + 1, start + n * dt + dt, dt)
        states.append(method.read_out(y))
    return Trajectory(_times(start, end, int(steps), u0), _stack(states))


def _right_hand_side(f: Field, takes_time: bool, t: float, dt: float) -> RightHandSide:
    """Return `f` as the right-hand side of the step from `t`."""

    def rhs(u: State, c: Coefficient, i: int) -> State:
        value = f(t + float(c) * dt, u) if takes_time else f(u)
        value = value if is_tensor(value) else np.asarray(value)
        if is_tensor(value) != is_tensor(u):
            raise UserError(
                f"f returned a {type(value).__name__} for a state that is a {type(u).__name__}: expected the same"
            )
        if tuple(value.shape) != tuple(u.shape):
            raise UserError(
                f"f returned shape {tuple(value.shape)} for a state of shape {tuple(u.shape)}: expected the same"
            )
        return value

    return rhs


def _takes_time(f: Field) -> bool:
    """Whether `f` is `f(t, u)`: it has two parameters without a default."""
    f = getattr(f, "_orig_mod", f)  # a compiled module hides its signature
    f = getattr(f, "forward", f)
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):  # a builtin such as numpy.sin has no signature: one argument
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters) >= 2


def _check_equation(scheme: Scheme, f: Field | tuple[Field, ...], u0: State) -> None:
    equation = scheme.equation
    sides, states = 1 + (equation.partitioned or equation.split), 1 + equation.partitioned
    if (len(parts_of(f)), len(parts_of(u0))) != (sides, states):
        wanted = "a pair (f, g) and a pair (X, Y)" if equation.partitioned else "one f and one array"
        wanted = "a pair (f, g) and one array" if equation.split else wanted
        raise UserError(f"scheme {scheme.name!r} solves {equation}: expected {wanted}")
    mass = equation.mass
    if scheme.learned:  # residual connections of networks, which need not solve an equation
        return
    if bool((mass == 0).any() if isinstance(mass, np.ndarray) or is_tensor(mass) else mass == 0):
        raise UserError(f"scheme {scheme} is consistent with {equation}, which has no solution")


def _check_kinds(scheme: Scheme, u0: State) -> None:
    parts = parts_of(u0)
    if is_tensor(scheme.k) and not all(map(is_tensor, parts)):
        raise UserError(f"k is a tensor and the state a {type(parts[0]).__name__}: give a number k, or a tensor u0")
    of_k, of_u = tuple(getattr(scheme.k, "shape", ())), tuple(parts[0].shape)
    if any(size not in (1, full) for size, full in zip(of_k[::-1], of_u[::-1], strict=False)):
        raise UserError(f"k of shape {of_k} for a state of shape {of_u}: expected one k, or one for each component")


def _as_state(u0: object) -> State:
    if isinstance(u0, tuple):
        return tuple(_as_state(part) for part in u0)
    state: State
    if is_tensor(u0):
        state = u0 if u0.is_floating_point() or u0.is_complex() else u0 * 1.0  # of torch's default type
    else:
        try:
            state = np.asarray(u0)
            state = state if state.dtype.kind in "fc" else state.astype(np.float64)
        except (TypeError, ValueError):
            raise UserError(f"u0 is a {type(u0).__name__}: expected an array of numbers") from None
    if not is_finite(state):
        raise UserError("u0 holds nan or inf: expected finite numbers")
    return state


def _check_finite(u: State, scheme: Scheme, n: int, t: float, dt: float) -> None:
    if not all(map(is_finite, parts_of(u))):
        raise UserError(
            f"{scheme.name} blew up at step {n}, t = {t:g}, dt = {dt:g}: take more steps, or a more stable scheme"
        )


def _times(start: float, end: float, steps: int, u0: State) -> State:
    first = parts_of(u0)[0]
    if is_tensor(first):
        import torch

        real = first.real.dtype if first.is_complex() else first.dtype
        return torch.linspace(start, end, steps + 1, dtype=real, device=first.device)
    return np.linspace(start, end, steps + 1)


def _stack(states: list[State]) -> State:
    if isinstance(states[0], tuple):
        return tuple(_stack(list(part)) for part in zip(*states, strict=True))
    if is_tensor(states[0]):
        import torch

        return torch.stack(states)
    return np.stack(states)
