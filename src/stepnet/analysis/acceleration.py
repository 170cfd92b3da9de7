"""Why negative k accelerates: `lm` on a gradient flow is Polyak's heavy ball (paper, section 2.2).

With `f = -grad g` and g quadratic, eigenvalues in [mu, L], one step multiplies each eigenvector's error by the growth
factor of the scheme at `z = -lambda dt`. Euler reaches `(kappa - 1)/(kappa + 1)` at best, `kappa = L/mu`; `lm` with the
best k reaches `(sqrt(kappa) - 1)/(sqrt(kappa) + 1)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stepnet.analysis.scheme_analysis import analyse
from stepnet.analysis.stability import Array
from stepnet.arguments import Count, checked
from stepnet.errors import UserError
from stepnet.schemes import Scheme, solve


class Descent(NamedTuple):
    """A step size, a coefficient k, and the asymptotic factor by which one step reduces the error."""

    dt: float
    k: float
    rate: float


@checked
def convergence_rate(scheme: str | Scheme, eigenvalues: Sequence[float] | Array, dt: float) -> float:
    """Return the asymptotic factor of a step on a quadratic with these eigenvalues: the largest growth factor."""
    if not len(eigenvalues):
        raise UserError("no eigenvalues: expected at least one")
    return float(analyse(scheme).growth(-np.asarray(eigenvalues, dtype=float) * dt).max())


@checked
def best_euler(mu: float, L: float) -> Descent:
    """Gradient descent with the best step: `dt = 2/(L + mu)`."""
    _check(mu, L)
    return Descent(2 / (L + mu), 0.0, (L - mu) / (L + mu))


@checked
def best_lm(mu: float, L: float) -> Descent:
    """The heavy ball with the best step and k: `dt = 4/(sqrt(L) + sqrt(mu))^2`, `k = -rate^2`."""
    _check(mu, L)
    high, low = math.sqrt(L), math.sqrt(mu)
    rate = (high - low) / (high + low)
    return Descent(4 / (high + low) ** 2, -(rate**2), rate)


@checked
def descend(scheme: str | Scheme, eigenvalues: Sequence[float], dt: float, steps: Count) -> Array:
    """Return the error norms `|u_0|, …, |u_steps|` of a run on the quadratic, each eigenvector started at 1."""
    values = np.asarray(eigenvalues, dtype=float)
    run = solve(lambda u: -values * u, np.ones_like(values), (0.0, steps * dt), steps, scheme)
    return np.asarray(np.linalg.norm(run.u, axis=1))


def _check(mu: float, L: float) -> None:
    if not 0 < mu <= L < math.inf:
        raise UserError(f"eigenvalues between mu = {mu} and L = {L}: expected 0 < mu <= L")
