"""The condition of appendix B, and the error of one step."""

import numpy as np
import pytest
import sympy
from sympy import Rational, sqrt

from stepnet.analysis.condition import Smallness, increment_moment, one_step_error, weak_condition
from stepnet.analysis.sde import stochastic_equation
from stepnet.analysis.symbols import dt
from stepnet.schemes.noises import falling, get_noise, p, t

f, f1, f2 = sympy.symbols("f f1 f2")
NUMBERS = {"stochastic_depth": {"p": 0.2}, "shake_shake": {}, "rademacher": {"sigma": 0.5}, "gaussian": {"sigma": 0.5}}


@pytest.mark.parametrize("name", ["shake_shake", "rademacher", "gaussian", "additive"])
def test_symmetric_noises_satisfy_the_condition(name):
    condition = weak_condition(name)
    assert condition.holds
    assert str(condition) == "holds"
    assert all(term.order == sympy.oo for term in condition.terms)


def test_stochastic_depth_needs_p_near_one_half():
    condition = weak_condition("stochastic_depth")
    assert not condition.holds
    assert [term.order for term in condition.terms] == [sympy.oo, sympy.oo, Rational(3, 2)]
    assert sympy.simplify(condition.terms[2].coefficient - (1 - 2 * p) / sqrt(p * (1 - p))) == 0
    assert condition.assumptions == (Smallness(1 - 2 * p, Rational(1, 2)),)
    assert str(condition) == "fails: E dW^3 is of order 3/2; holds if 1 - 2 p = O(sqrt(dt))"


@pytest.mark.parametrize(("survival", "nearest"), [(0.8, 0.6), (0.5, 0.0)])
def test_the_papers_survival_probabilities_are_not_near_one_half(survival, nearest):
    """`p(t) = 1 - (1 - p_L) t`: |1 - 2p| falls from 1 to that, for any number of blocks; E dW^3 is O(dt^3/2)."""
    law = falling(survival)
    away = [abs(1 - 2 * float(law.subs(t, time))) for time in (0, 0.5, 1)]
    assert away[0] == 1 and away == sorted(away, reverse=True) and away[-1] == pytest.approx(nearest)
    condition = weak_condition("stochastic_depth", p=law)
    assert not condition.holds and condition.terms[2].order == Rational(3, 2)


def test_stochastic_depth_at_a_number():
    assert weak_condition("stochastic_depth", p=0.5).holds
    assert str(weak_condition("stochastic_depth", p=0.2)) == "fails: E dW^3 is of order 3/2"
    assert increment_moment(get_noise("stochastic_depth", p=0.2), 3) == Rational(3, 2) * dt ** Rational(3, 2)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("moment", [1, 2, 3])
def test_the_error_of_one_step_is_what_the_exact_means_leave(name, moment):
    """With numbers: the mean over the points of the quadrature, against `exp(growth dt)` of the equation."""
    noise = get_noise(name, **NUMBERS[name])
    rates, values = sympy.symbols("a b"), (-0.7, 0.4)
    error = one_step_error(noise, moment)
    equation = stochastic_equation(noise)
    at = {f: -0.7, f1: -0.7, f2: 0.4}
    drift, diffusion = float(equation.drift.subs(at)), float(equation.diffusion.subs(at))
    h = 1e-4
    points, weights = noise.quadrature(4)
    found = weights @ (1 + h * drift + np.sqrt(h) * diffusion * points) ** moment
    wanted = np.exp(h * (moment * drift + moment * (moment - 1) / 2 * diffusion**2))
    leading = float(error.value.subs(dict(zip(rates, values, strict=True))).subs(dt, h))
    assert found - wanted == pytest.approx(leading, rel=0.1)
    assert error.order == (Rational(3, 2) if (name, moment) == ("stochastic_depth", 3) else 2)


def test_the_error_of_one_step_of_an_additive_noise():
    """From X = 1: `E (1 + a dt + sigma dW)^2` against `e^(2 a dt) + sigma^2 (e^(2 a dt) - 1)/(2 a)`."""
    a, sigma = sympy.symbols("a sigma", positive=True)
    wanted = sympy.exp(2 * a * dt) + sigma**2 * (sympy.exp(2 * a * dt) - 1) / (2 * a)
    left = sympy.series((1 + a * dt) ** 2 + sigma**2 * dt - wanted, dt, 0, 3).removeO()
    error = one_step_error("additive", 2)
    assert error.order == 2 and sympy.expand(error.value.subs(sympy.Symbol("a"), a) - left) == 0


def test_third_moments_of_stochastic_depth_lose_half_an_order_for_every_rate():
    a = sympy.Symbol("a")
    error = one_step_error("stochastic_depth", 3)
    assert error.order == Rational(3, 2)
    assert sympy.expand(error.coefficient - a**3 * p * (1 - p) * (1 - 2 * p)) == 0
    assert one_step_error("stochastic_depth", 3, p=0.5).order == 2


def test_lm_with_noise_has_the_weak_orders_of_the_noise():
    """Section 3.2: third moments of the pair lose half an order where p is not 1/2, as in section 3.1."""
    assert [one_step_error("stochastic_depth", m, damping=0.7, p=0.2).order for m in (1, 2, 3)] == [
        2,
        2,
        Rational(3, 2),
    ]
    assert [one_step_error("stochastic_depth", m, damping=0.7, p=0.5).order for m in (1, 2, 3)] == [2, 2, 2]
    assert one_step_error("stochastic_depth", 3, damping=0.7, p=0.2).name == "E Y^3"


def test_a_p_that_changes_adds_its_slope_to_the_error():
    """`E X_1 - E X(dt)` with `p = 1 - t/2` is `dt^2 (-a^2 p^2 - a p')/2`: what Euler leaves of a moving p."""
    a, t = sympy.Symbol("a"), sympy.Symbol("t", real=True)
    error = one_step_error("stochastic_depth", p=1 - t / 2)
    assert sympy.expand(error.coefficient - (-((a * (1 - t / 2)) ** 2) + a / 2) / 2) == 0


def test_a_uniform_increment_needs_its_variance_scaled():
    """Appendix B: `sqrt(dt) U(-1/2, 1/2)` has mean 0, and variance dt/12; times sqrt(12) it satisfies the condition."""
    x = sympy.Symbol("x")
    variance = sympy.integrate(x**2, (x, -Rational(1, 2), Rational(1, 2)))
    assert dt * variance - dt == -Rational(11, 12) * dt  # of order 1, where the condition asks for 2
    assert increment_moment(get_noise("shake_shake"), 2) == 12 * dt * variance == dt
    assert weak_condition("shake_shake").holds
