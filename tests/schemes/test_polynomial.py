"""PolyNet's truncations: one polynomial for linear f, and what neumann loses for nonlinear f."""

import numpy as np
import pytest

from stepnet import UserError, solve
from stepnet.analysis import convergence, order
from stepnet.schemes import Equation, Neumann, Picard, get_scheme

MATRIX = np.array([[-0.5, 0.8], [-0.3, 0.1]])
U0 = np.array([1.0, -0.4])


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_for_linear_f_both_are_the_truncated_inverse(m):
    dt = 0.3
    wanted = sum(np.linalg.matrix_power(dt * MATRIX, j) for j in range(m + 1)) @ U0
    for scheme in (Neumann(m), Picard(m)):
        found = solve(lambda u: MATRIX @ u, U0, (0, dt), 1, scheme).u[-1]
        assert np.allclose(found, wanted, rtol=0, atol=1e-15)


@pytest.mark.parametrize("family", [Neumann, Picard])
def test_for_linear_f_the_limit_is_backward_euler(family):
    wanted = solve(lambda u: MATRIX @ u, U0, (0, 1), 4, "backward_euler").u
    assert np.allclose(solve(lambda u: MATRIX @ u, U0, (0, 1), 4, family(40)).u, wanted, rtol=0, atol=1e-12)


def test_for_nonlinear_f_the_limit_of_picard_is_backward_euler():
    def f(t, u):
        return np.cos(u) * (1 + t)

    wanted = solve(f, U0, (0, 1), 8, "backward_euler").u
    assert np.allclose(solve(f, U0, (0, 1), 8, Picard(60)).u, wanted, rtol=0, atol=1e-11)


def test_neumann_is_inconsistent_for_nonlinear_f():
    """With f(0) != 0 the error does not vanish with dt; picard's does."""
    assert order("neumann2", against=Equation()) == 0
    assert order("picard2", against=Equation()) == 1

    def error(scheme, f, exact):
        return [abs(float(solve(f, np.array([0.5]), (0, 1), n, scheme).u[-1][0]) - exact) for n in (100, 1000)]

    # u' = 1, u(0) = 1/2: F(F(u)) = dt again, so neumann2 solves u' = 2 in effect
    assert error("neumann2", np.ones_like, 1.5) == pytest.approx([1.0, 1.0])
    assert error("picard2", np.ones_like, 1.5) == pytest.approx([0.0, 0.0], abs=1e-12)
    # f(u) = -u^2 has f(0) = 0, and there it is consistent
    coarse, fine = error("neumann2", lambda u: -(u**2), 0.5 / 1.5)
    assert 8 < coarse / fine < 12


def test_their_order_is_1_whatever_their_name():
    assert [order(f"{family}{m}") for family in ("neumann", "picard") for m in (2, 3, 4)] == [1] * 6
    assert convergence(get_scheme("picard4")).slope == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("m", [0, -2, 2.0])
def test_a_bad_order_is_refused(m):
    with pytest.raises(UserError, match=r"expected (1 or more|a whole number)"):
        Neumann(m)
