"""The noises: moments against sympy's own distributions, quadrature and quantiles against the moments."""

import numpy as np
import pytest
import sympy
from sympy import Rational
from sympy import stats as law

from stepnet import UserError
from stepnet.schemes.noises import Gaussian, get_noise, list_noises, p, register_noise, sigma

NUMBERS = {
    "stochastic_depth": {"p": 0.2},
    "shake_shake": {},
    "rademacher": {"sigma": 0.5},
    "gaussian": {"sigma": 0.5},
    "additive": {"sigma": 0.5},
}
LAWS = {
    "stochastic_depth": law.Bernoulli("eta", p),
    "shake_shake": law.Uniform("eta", 0, 1),
    "rademacher": law.FiniteRV("eta", {1 - sigma: Rational(1, 2), 1 + sigma: Rational(1, 2)}),
    "gaussian": law.Normal("eta", 1, sigma),
    "additive": law.Normal("eta", 0, sigma),
}


def test_every_noise_is_tested():
    assert list_noises() == list(NUMBERS) == list(LAWS)


@pytest.mark.parametrize("name", list_noises())
def test_moments_are_those_of_the_law(name):
    noise, eta = get_noise(name), LAWS[name]
    assert sympy.simplify(law.E(eta) - noise.mean) == 0
    assert sympy.simplify(law.E((eta - noise.mean) ** 2) - noise.deviation**2) == 0
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


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("stochastic_depht", {}, "did you mean 'stochastic_depth'"),
        ("stochastic_depth", {"p": 1.5}, "p = 1.5: expected 0 < p < 1"),
        ("stochastic_depth", {"p": 1}, "p = 1: expected 0 < p < 1"),
        ("stochastic_depth", {"p": float("nan")}, "p = nan"),
        ("gaussian", {"sigma": -1}, "sigma = -1: expected sigma > 0"),
        ("shake_shake", {"p": 0.5}, "takes no option 'p': it takes none"),
    ],
)
def test_bad_input(name, parameters, message):
    with pytest.raises(UserError, match=message):
        get_noise(name, **parameters)


def test_a_symbol_cannot_be_sampled():
    with pytest.raises(UserError, match="p is a symbol"):
        get_noise("stochastic_depth").quantile(np.array([0.5]))


def test_a_parameter_for_a_noise_that_has_its_own_is_refused():
    with pytest.raises(UserError, match="stochastic_depth is built already and does not take p"):
        get_noise(get_noise("stochastic_depth", p=0.2), p=0.5)


@pytest.mark.usefixtures("registries")
def test_a_noise_is_registered_once_and_by_its_class():
    @register_noise("arcsine")
    class Arcsine(Gaussian):
        normal = False

    assert list_noises()[-1] == "arcsine" and isinstance(get_noise("arcsine", sigma=0.5), Arcsine)
    assert get_noise("arcsine", sigma=0.5).heading == "arcsine, sigma = 0.5"
    with pytest.raises(UserError, match="noise 'arcsine' is registered already"):
        register_noise("arcsine")(Arcsine)
    with pytest.raises(UserError, match=r"register_noise\('mine'\) on .*: expected a subclass of Noise"):
        register_noise("mine")(3)


def test_how_eta_enters():
    eta = sympy.Symbol("eta")
    weights = {name: get_noise(name).weights(eta) for name in list_noises()}
    assert weights.pop("shake_shake") == (eta, 1 - eta) and weights.pop("additive") == (1, eta)
    assert set(weights.values()) == {(eta,)}
    assert [get_noise(name).branches for name in ("gaussian", "shake_shake", "additive")] == [1, 2, 1]
