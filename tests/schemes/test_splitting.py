"""Splitting `u' = f + g`: formulas written out, orders in double precision and on trees."""

from __future__ import annotations

import numpy as np
import pytest

import stepnet
from stepnet.analysis import convergence, order
from stepnet.schemes import Euler, LieTrotter, Parallel, Scheme, Strang, solve

A = np.array([[0.0, 1.0], [0.0, 0.0]])
M = np.array([[0.0, 0.0], [-1.0, -0.5]])
ONE = np.eye(2)
ORDERS = [(Parallel(), 1), (LieTrotter(), 1), (Strang("midpoint"), 2), (Strang(), 1)]


def step_matrix(scheme: Scheme, dt: float) -> np.ndarray:
    """One step on `u' = A u + M u`, as a matrix."""
    return solve((lambda u: A @ u, lambda u: M @ u), ONE, (0.0, dt), 1, scheme).u[-1]


def test_one_step_by_its_formula() -> None:
    dt = 0.3
    a, m, half = dt * A, dt * M, dt * M / 2
    np.testing.assert_allclose(step_matrix(Parallel(), dt), ONE + a + m, atol=1e-15)
    np.testing.assert_allclose(step_matrix(LieTrotter(), dt), (ONE + m) @ (ONE + a), atol=1e-15)
    np.testing.assert_allclose(step_matrix(Strang(), dt), (ONE + half) @ (ONE + a) @ (ONE + half), atol=1e-15)
    half, whole = ONE + half + half @ half / 2, ONE + a + a @ a / 2
    np.testing.assert_allclose(step_matrix(Strang("midpoint"), dt), half @ whole @ half, atol=1e-15)


@pytest.mark.parametrize(("scheme", "p"), ORDERS, ids=lambda value: str(getattr(value, "base", value)))
def test_orders_on_trees_and_in_double_precision(scheme: Scheme, p: int) -> None:
    """f and g depend on time and do not commute. Macaron's Euler steps keep a symmetric splitting at order 1."""
    assert order(scheme) == p == scheme.order
    assert convergence(scheme, (32, 64, 128)).slope == pytest.approx(p, abs=0.1)


def test_parallel_is_euler_of_the_sum() -> None:
    f, g = (lambda t, u: np.sin(u) + t), (lambda t, u: -u * u)
    split = solve((f, g), np.array([0.5, 0.2]), (0, 1), 7, Parallel()).u
    whole = solve(lambda t, u: f(t, u) + g(t, u), np.array([0.5, 0.2]), (0, 1), 7, Euler()).u
    np.testing.assert_allclose(split, whole, atol=1e-15)


def test_the_modified_equation_says_why_a_symmetric_splitting_by_euler_has_order_1() -> None:
    """By hand: `(1 + m/2)(1 + a)(1 + m/2) = exp(a + m - a^2/2 - m^2/4 + …)`: no commutator, but Euler's own errors."""
    found = {name: str(stepnet.analyse(name).modified_lines()[0]) for name in ("parallel", "lie_trotter", "strang")}
    assert found == {
        "parallel": "u' = f + g - dt/2 f'f - dt/2 f'g - dt/2 g'f - dt/2 g'g",
        "lie_trotter": "u' = f + g - dt/2 f'f - dt/2 f'g + dt/2 g'f - dt/2 g'g",
        "strang": "u' = f + g - dt/2 f'f - dt/4 g'g",
    }


@pytest.mark.parametrize("scheme", [Parallel(), LieTrotter(), Strang()], ids=lambda scheme: scheme.name)
def test_mistakes_are_one_line(scheme: Scheme) -> None:
    with pytest.raises(stepnet.UserError, match=r"solves u' = f \+ g: expected a pair \(f, g\) and one array"):
        solve(lambda u: u, np.ones(2), (0, 1), 2, scheme)
    with pytest.raises(stepnet.UserError, match="base"):
        Strang("rk4")  # type: ignore[arg-type]
