"""The modified equation of a scheme, solved on a linear flow `mass u' = -lambda u`, compared with the march itself.

With its first correction, `c_1 a' + c_2 dt a'' = -lambda a` for every eigenvalue: a damped oscillator. `lm` has
`c_1 = 1 + k` and `c_2 = (1 - k)/2`, so that a negative k reduces friction and adds mass: slow modes are accelerated
first, and oscillate where `(1 + k)^2 < 2 (1 - k) dt lambda`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from stepnet.analysis.accuracy import Array
from stepnet.analysis.modified import t, u
from stepnet.analysis.scheme_analysis import analyse
from stepnet.analysis.symbols import dt
from stepnet.arguments import Count, Positive, checked
from stepnet.errors import UserError
from stepnet.schemes import Coefficient, Point, Scheme, get_scheme, march


class LinearFlow(NamedTuple):
    """The times of a march, its states, and those of its modified equation: one column for each eigenvalue."""

    t: Array
    march: Array
    modified: Array


@checked
def march_and_modified(
    scheme: str | Scheme,
    eigenvalues: Sequence[float] | Array,
    step: Positive,
    steps: Count,
    start: float | Sequence[float] | Array = 1.0,
) -> LinearFlow:
    """March `u' = -lambda u` from rest and solve the modified equation through the march's first two states.

    At rest the past is `u_0` itself: the first step of a network, and of the heavy ball.
    """
    values, method, step = np.asarray(eigenvalues, dtype=float), get_scheme(scheme), float(step)
    u0 = np.asarray(start, dtype=float)
    if u0.shape not in ((), values.shape):
        raise UserError(f"start of shape {u0.shape}, eigenvalues of shape {values.shape}: expected one for each")
    u0 = np.broadcast_to(u0, values.shape)

    def rhs(u: Array, c: Coefficient, i: int) -> Array:
        return -values * u

    past = [Point(u0, rhs)] * (method.steps - 1)
    states = np.stack([u0, *march(method, repeat(rhs, steps), u0, step, past=past)])
    first, second = _coefficients(method)
    roots = np.sqrt(np.asarray(first**2 - 4 * second * step * values, dtype=complex))
    slow, fast = ((-first + sign * roots) / (2 * second * step) for sign in (1, -1))
    fast = np.where(slow == fast, fast * (1 + 1e-9), fast)
    ends = np.exp(slow * step), np.exp(fast * step)
    share = (states[1] - ends[1] * u0) / (ends[0] - ends[1])  # of the slow root, so that both first states agree
    times = np.asarray(step * np.arange(steps + 1), dtype=np.float64)
    modified = share * np.exp(slow * times[:, None]) + (u0 - share) * np.exp(fast * times[:, None])
    return LinearFlow(times, states, np.asarray(modified.real))


def _coefficients(method: Scheme) -> tuple[float, float]:
    """`c_1` and `c_2` of `c_1 u' + c_2 dt u'' = f`."""
    equation = analyse(method).modified_equation(terms=2, form="derivatives")
    if isinstance(equation, tuple) or method.equation.derivative != 1:
        raise UserError(f"{method.name} has no modified equation in u' and u'': expected a method for u' = f")
    left = equation.lhs.expand()
    first, second = (float(left.coeff(u(t).diff(t, n)).coeff(dt, n - 1)) for n in (1, 2))
    if not first or not second:
        raise UserError(f"{method} has the modified equation {left} = f: expected terms in u' and dt u''")
    return first, second
