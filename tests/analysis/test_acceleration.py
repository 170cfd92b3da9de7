"""Acceleration by negative k: closed forms against numerical optimisation and against runs."""

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

from stepnet import UserError, get_scheme
from stepnet.analysis import best_euler, best_lm, convergence_rate, descend

MU, L = 1.0, 50.0
EIGENVALUES = np.linspace(MU, L, 40)
KAPPA = L / MU


def test_the_rates_are_those_of_the_condition_number():
    assert best_euler(MU, L).rate == pytest.approx((KAPPA - 1) / (KAPPA + 1))
    assert best_lm(MU, L).rate == pytest.approx((KAPPA**0.5 - 1) / (KAPPA**0.5 + 1))
    assert -1 < best_lm(MU, L).k < 0


def test_the_amplification_polynomial_gives_the_same_rates():
    euler, lm = best_euler(MU, L), best_lm(MU, L)
    assert convergence_rate("euler", EIGENVALUES, euler.dt) == pytest.approx(euler.rate, abs=1e-12)
    # both ends of the spectrum have a double root, which rounding splits by its square root
    assert convergence_rate(get_scheme("lm", k=lm.k), EIGENVALUES, lm.dt) == pytest.approx(lm.rate, abs=1e-6)


def test_no_step_does_better_than_euler_s_best():
    found = minimize_scalar(lambda h: convergence_rate("euler", EIGENVALUES, h), bounds=(1e-3, 0.1), method="bounded")
    assert found.x == pytest.approx(best_euler(MU, L).dt, rel=1e-3)
    assert found.fun == pytest.approx(best_euler(MU, L).rate, abs=1e-4)


def test_no_step_and_k_do_better_than_the_heavy_ball_s_best():
    ends = np.array([MU, 5.0, 20.0, L])

    def rate(point):  # the spectral radius, by numpy: an optimiser needs it quickly
        h, k = point
        return max(np.abs(np.roots([1, -(1 - k - h * value), -k])).max() for value in ends)

    best = best_lm(MU, L)
    starts = [(best.dt * a, best.k * b) for a in (0.6, 1.0, 1.3) for b in (0.7, 1.0, 1.2)]
    found = min((minimize(rate, s, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-10}) for s in starts),
                key=lambda result: result.fun)  # fmt: skip
    assert found.fun == pytest.approx(best.rate, abs=1e-4)
    assert found.x == pytest.approx([best.dt, best.k], rel=1e-2)


def test_a_run_shrinks_at_the_predicted_rate():
    euler, lm = best_euler(MU, L), best_lm(MU, L)
    slow = descend("euler", EIGENVALUES, euler.dt, 200)
    fast = descend(get_scheme("lm", k=lm.k), EIGENVALUES, lm.dt, 80)
    assert (slow[200] / slow[100]) ** (1 / 100) == pytest.approx(euler.rate, abs=1e-3)
    assert (fast[80] / fast[40]) ** (1 / 40) == pytest.approx(lm.rate, abs=0.03)  # n rate^n: a double root
    assert fast[80] < 1e-4 * slow[80]


def test_a_bad_spectrum_is_named():
    for mu, top in ((0.0, 1.0), (2.0, 1.0), (1.0, np.inf), (-1.0, 1.0)):
        with pytest.raises(UserError, match=f"L = {top}: expected"):
            best_lm(mu, top)
