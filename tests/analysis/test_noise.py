"""The noises: moments against sympy's own distributions, the condition of appendix B, the associated equations."""

import numpy as np
import pytest
import sympy
from sympy import Rational, sqrt
from sympy import stats as law

from stepnet import UserError
from stepnet.analysis.noise import (
    Smallness,
    dt,
    get_noise,
    increment_moment,
    list_noises,
    one_step_error,
    p,
    sigma,
    stochastic_equation,
    weak_condition,
)

f, f1, f2 = sympy.symbols("f f1 f2")
NUMBERS = {"stochastic_depth": {"p": 0.2}, "shake_shake": {}, "rademacher": {"sigma": 0.5}, "gaussian": {"sigma": 0.5}}
LAWS = {
    "stochastic_depth": law.Bernoulli("eta", p),
    "shake_shake": law.Uniform("eta", 0, 1),
    "rademacher": law.FiniteRV("eta", {1 - sigma: Rational(1, 2), 1 + sigma: Rational(1, 2)}),
    "gaussian": law.Normal("eta", 1, sigma),
}


def test_every_noise_is_tested():
    assert list_noises() == list(NUMBERS) == list(LAWS)


@pytest.mark.parametrize("name", list_noises())
def test_moments_are_those_of_the_law(name):
    noise, eta = get_noise(name), LAWS[name]
    assert sympy.simplify(law.E(eta) - noise.mean) == 0
    for m in range(5):
        wanted = law.E((eta - noise.mean) ** m) / noise.deviation**m
        assert sympy.simplify(wanted - noise.moment(m)) == 0


@pytest.mark.parametrize("name", list_noises())
def test_quadrature_is_exact_and_quantiles_follow_the_law(name):
    noise = get_noise(name, **NUMBERS[name])
    points, weights = noise.quadrature(4)
    u = (np.arange(200_000) + 0.5) / 200_000
    for m in range(8):
        wanted = float(noise.moment(m))
        assert weights @ points**m == pytest.approx(wanted, abs=1e-11)
        assert (noise.quantile(u) ** m).mean() == pytest.approx(wanted, rel=1e-2, abs=1e-6)


def test_the_equations_of_section_3_1():
    depth, shake = stochastic_equation("stochastic_depth"), stochastic_equation("shake_shake")
    assert sympy.simplify(depth.drift - p * f) == 0
    assert sympy.simplify(depth.diffusion - sqrt(p * (1 - p)) * f) == 0
    assert sympy.simplify(shake.drift - (f1 + f2) / 2) == 0
    assert sympy.simplify(shake.diffusion - (f1 - f2) / sqrt(12)) == 0
    assert str(depth) == "dX = p f dt + sqrt(p (1 - p)) f dB"
    assert str(shake) == "dX = (f1 + f2)/2 dt + sqrt(3) (f1 - f2)/6 dB"
    assert str(stochastic_equation("gaussian")) == "dX = f dt + sigma f dB"


@pytest.mark.parametrize("name", ["shake_shake", "rademacher", "gaussian"])
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


def test_stochastic_depth_at_a_number():
    assert weak_condition("stochastic_depth", p=0.5).holds
    assert str(weak_condition("stochastic_depth", p=0.2)) == "fails: E dW^3 is of order 3/2"
    assert increment_moment(get_noise("stochastic_depth", p=0.2), 3) == Rational(3, 2) * dt ** Rational(3, 2)


@pytest.mark.parametrize("name", list_noises())
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


def test_third_moments_of_stochastic_depth_lose_half_an_order_for_every_rate():
    a = sympy.Symbol("a")
    error = one_step_error("stochastic_depth", 3)
    assert error.order == Rational(3, 2)
    assert sympy.expand(error.coefficient - a**3 * p * (1 - p) * (1 - 2 * p)) == 0
    assert one_step_error("stochastic_depth", 3, p=0.5).order == 2


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("stochastic_depht", {}, "did you mean 'stochastic_depth'"),
        ("stochastic_depth", {"p": 1.5}, "p = 1.5: expected 0 < p < 1"),
        ("stochastic_depth", {"p": 1}, "p = 1: expected 0 < p < 1"),
        ("stochastic_depth", {"p": float("nan")}, "p = nan"),
        ("gaussian", {"sigma": -1}, "sigma = -1: expected sigma > 0"),
        ("shake_shake", {"p": 0.5}, "has no parameter p"),
    ],
)
def test_bad_input(name, parameters, message):
    with pytest.raises(UserError, match=message):
        get_noise(name, **parameters)


def test_a_symbol_cannot_be_sampled():
    with pytest.raises(UserError, match="p is a symbol"):
        get_noise("stochastic_depth").quantile(np.array([0.5]))
