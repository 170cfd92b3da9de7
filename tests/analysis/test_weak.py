"""Weak orders, exactly and by Monte Carlo, and what happens when the paper's assumption fails."""

import math
from itertools import product

import numpy as np
import pytest
import sympy

from stepnet import UserError
from stepnet.analysis.sde import stochastic_step, xi
from stepnet.analysis.weak import (
    Problem,
    exact_moment,
    sampled_moment,
    scheme_moment,
    torchsde_moment,
    weak_error,
    weak_order,
)
from stepnet.schemes.noises import falling, get_noise

WEAK = [
    ("stochastic_depth", {"p": 0.5}),
    ("shake_shake", {}),
    ("rademacher", {"sigma": 0.5}),
    ("gaussian", {"sigma": 0.5}),
]
DAMPED = Problem(rates=(-1.0,), damping=0.7)


@pytest.mark.parametrize(("name", "parameters"), WEAK, ids=str)
@pytest.mark.parametrize("moment", [1, 2, 3])
def test_weak_order_one(name, parameters, moment):
    assert weak_order(name, moment, **parameters).slope == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(("name", "parameters"), WEAK[:2], ids=str)
@pytest.mark.parametrize("moment", [1, 2])
def test_weak_order_one_by_monte_carlo(name, parameters, moment):
    found = weak_order(name, moment, samples=50_000, **parameters)
    assert abs(found.slope - 1) + found.interval < 0.2
    assert found.interval > 0
    assert found.interval <= float(str(found).split("±")[1]) < found.interval + 0.001


def test_without_the_assumption_third_moments_fall_to_one_half():
    """`1 - 2p = O(sqrt(dt))` fails for a fixed p other than 1/2; first and second moments do not feel it."""
    assert weak_order("stochastic_depth", 1, p=0.2).slope == pytest.approx(1, abs=0.01)
    assert weak_order("stochastic_depth", 2, p=0.2).slope == pytest.approx(1, abs=0.01)
    assert weak_order("stochastic_depth", 3, p=0.2).slope == pytest.approx(0.5, abs=0.01)
    sampled = weak_order("stochastic_depth", 3, p=0.2, samples=50_000)
    assert abs(sampled.slope - 0.5) + sampled.interval < 0.1


def test_with_the_assumption_third_moments_keep_order_one():
    """p_n = (1 - sqrt(dt)) / 2: the equation moves with dt too, so each error is against its own equation."""
    steps = [2**n for n in range(8, 13)]
    errors = [abs(weak_error("stochastic_depth", n, 3, p=(1 - n**-0.5) / 2).error) for n in steps]
    slope = -np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert slope == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_exact_moments_are_those_of_geometric_brownian_motion(moment):
    drift, diffusion = 0.2 * -0.5, math.sqrt(0.2 * 0.8) * -0.5
    wanted = 1.5**moment * math.exp(2 * (moment * drift + moment * (moment - 1) / 2 * diffusion**2))
    noise = get_noise("stochastic_depth", p=0.2)
    assert exact_moment(noise, moment, Problem(rates=(-0.5,), start=1.5, time=2.0)) == pytest.approx(wanted, rel=1e-13)


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_the_scheme_s_moments_are_those_of_all_its_paths(moment):
    """Stochastic depth with 6 steps has 2^6 outcomes: `X = prod (1 + a (dt p + sqrt(dt) (eta - p)))`."""
    p, dt, mean = 0.2, 1 / 6, 0.0
    for kept in range(7):
        keep, drop = (1 - 0.5 * (dt * p + math.sqrt(dt) * (eta - p)) for eta in (1, 0))
        mean += math.comb(6, kept) * p**kept * (1 - p) ** (6 - kept) * (keep**kept * drop ** (6 - kept)) ** moment
    noise = get_noise("stochastic_depth", p=p)
    assert scheme_moment(noise, 6, moment, Problem(rates=(-0.5,))) == pytest.approx(mean, rel=1e-13)


@pytest.mark.parametrize(("name", "parameters"), [*WEAK, ("stochastic_depth", {"p": 0.2})], ids=str)
@pytest.mark.parametrize("problem", [Problem(), Problem(scheme="heun"), DAMPED], ids=["euler", "heun", "lm"])
def test_monte_carlo_agrees_with_the_scheme_s_exact_moments(name, parameters, problem):
    if name == "shake_shake" and problem is DAMPED:
        problem = Problem(damping=0.7)
    noise = get_noise(name, **parameters)
    for moment in (1, 2):
        found, deviation = sampled_moment(noise, 8, moment, problem, 20_000, seed=moment)
        assert abs(found - scheme_moment(noise, 8, moment, problem)) < 4 * deviation + 1e-12


@pytest.mark.parametrize(("name", "parameters"), [("stochastic_depth", {"p": 0.2}), ("shake_shake", {})], ids=str)
def test_the_95_per_cent_interval_covers_the_exact_error_as_often_as_it_says(name, parameters):
    exact = weak_error(name, 8, 3, **parameters).error
    found = [weak_error(name, 8, 3, samples=5000, seed=seed, **parameters) for seed in range(200)]
    covered = sum(abs(one.error - exact) < one.interval for one in found)
    assert 180 <= covered <= 199  # 190 expected, with a deviation of 3


def test_sampled_and_exact_slopes_are_the_same_estimate():
    exact = weak_order("stochastic_depth", 3, steps=(8, 16, 32, 64), p=0.2)
    sampled = weak_order("stochastic_depth", 3, samples=20_000, p=0.2)
    assert abs(sampled.slope - exact.slope) < 2 * sampled.interval < 0.2


def test_monte_carlo_is_a_function_of_its_seed():
    first, again, other = (weak_error("shake_shake", 4, samples=2000, seed=seed).error for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("moment", [1, 2])
def test_a_gated_heun_step_is_a_weak_scheme_of_the_same_equation(moment):
    assert weak_order("stochastic_depth", moment, Problem(scheme="heun"), p=0.5).slope == pytest.approx(1, abs=0.02)


def test_the_process_of_section_3_2_with_its_damping_sign():
    """`Y' = f - g Y` gives `(2 - g) X_n - (1 - g) X_{n-1} + eta f` at dt = 1: LM with k = g - 1."""
    x, before, g, p = sympy.symbols("x before g p")
    f = sympy.Function("f")
    noise = get_noise("stochastic_depth", p=p)
    new, velocity = stochastic_step(noise, (f,), (x, x - before), xi, sympy.Integer(1), g)
    eta = noise.mean + noise.deviation * xi
    assert sympy.expand(new - ((2 - g) * x - (1 - g) * before + eta * f(x))) == 0
    assert sympy.expand(velocity - (new - x)) == 0
    printed = (2 + g) * x - (1 + g) * before + eta * f(x)
    assert sympy.expand(new - printed) != 0


@pytest.mark.parametrize("moment", [1, 2])
def test_the_process_of_section_3_2_converges_weakly_and_with_the_printed_sign_it_does_not(moment):
    assert weak_order("stochastic_depth", moment, DAMPED, p=0.5).slope == pytest.approx(1, abs=0.02)
    noise = get_noise("stochastic_depth", p=0.5)
    printed = scheme_moment(noise, 4096, moment, Problem(rates=(-1.0,), damping=-0.7))
    assert abs(printed - exact_moment(noise, moment, DAMPED)) > 0.02


def test_the_damped_process_s_mean_is_the_damped_oscillator_s():
    """`x'' + g x' = -p x` from rest."""
    p, g = 0.5, 0.7
    frequency = math.sqrt(p - g * g / 4)
    wanted = math.exp(-g / 2) * (math.cos(frequency) + g / (2 * frequency) * math.sin(frequency))
    assert exact_moment(get_noise("stochastic_depth", p=p), 1, DAMPED) == pytest.approx(wanted, rel=1e-12)


def test_torchsde_agrees_with_the_exact_moments():
    pytest.importorskip("torchsde")
    for name, parameters in WEAK[:2]:
        noise = get_noise(name, **parameters)
        found, deviation = torchsde_moment(noise, 2, Problem(), 4000, steps=16)
        assert abs(found - exact_moment(noise, 2, Problem())) < 4 * deviation


def test_a_nonlinear_f_is_compared_with_torchsde():
    pytest.importorskip("torchsde")
    bounded = Problem(f=(lambda x: -2 * x / (1 + x * x),), time=2.0)
    coarse, fine = (weak_error("stochastic_depth", n, 2, bounded, samples=4000, p=0.5) for n in (1, 32))
    assert abs(coarse.error) > coarse.interval  # one step is seen to be wrong,
    assert abs(fine.error) < 2 * fine.interval  # thirty-two are right within the sampling


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: weak_error("shake_shake", 0), "steps = 0"),
        (lambda: weak_error("shake_shake", 4, 0), "moment = 0"),
        (lambda: weak_error("shake_shake", 4, problem=Problem(time=0.0)), "time = 0.0: expected more than 0"),
        (lambda: weak_error("shake_shake", 4, samples=100), "samples = 100: expected 2000 or more"),
        (lambda: weak_error("shake_shake", 4, problem=Problem(time=math.inf)), "time = inf"),
        (lambda: weak_error("shake_shake", 4, problem=Problem(rates=(-1.0,))), "rates .* a tuple of 2, one for each"),
        (
            lambda: weak_error("shake_shake", 4, problem=Problem(f=np.sin), samples=2000),
            "f = .*: expected a tuple",
        ),
        (lambda: weak_error("stochastic_depth", 4, problem=Problem(scheme="coupled"), p=0.5), "one-step scheme of X"),
        (lambda: weak_error("stochastic_depth", 4), "p is a symbol"),
        (lambda: weak_error("stochastic_depth", 4, problem=Problem(scheme="lm"), p=0.5), "one-step scheme"),
        (lambda: weak_error("stochastic_depth", 4, problem=Problem(f=(np.sin,)), p=0.5), "no exact moments"),
        (lambda: weak_order("shake_shake", steps=(4,)), "a slope needs two"),
        (lambda: weak_order("gaussian", 3, steps=(512, 1024), samples=2000, sigma=0.5), "more samples"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(UserError, match=message):
        call()


FALLING = get_noise("stochastic_depth", p=falling(0.5))


def test_the_moments_along_p_of_t():
    """`E X = exp(a int p)` and `E X^2 = exp(int 2 a p + a^2 p (1 - p))` with `p = 1 - t/2` on (0, 1)."""
    a, problem = -0.6, Problem(rates=(-0.6,))
    assert exact_moment(FALLING, 1, problem) == pytest.approx(math.exp(a * 3 / 4), rel=1e-12)
    assert exact_moment(FALLING, 2, problem) == pytest.approx(math.exp(2 * a * 3 / 4 + a * a / 6), rel=1e-12)


@pytest.mark.parametrize("damping", [None, 0.7])
def test_the_scheme_along_p_of_t_is_the_mean_over_all_gates(damping):
    """Three steps, p = 1, 5/6, 2/3: every sequence of gates, with its probability."""
    problem, dt, steps = Problem(rates=(-0.6,), damping=damping), 1 / 3, 3
    mean = 0.0
    for gates in product((0, 1), repeat=steps):
        x, y, chance = 1.0, 0.0, 1.0
        for n, eta in enumerate(gates):
            p = 1 - n * dt / 2
            chance *= p if eta else 1 - p
            force = (p + (eta - p) / math.sqrt(dt)) * -0.6 * x
            if damping is None:
                x = x + dt * force
            else:
                y = y + dt * (force - damping * y)
                x = x + dt * y
        mean += chance * x**3
    assert scheme_moment(FALLING, steps, 3, problem) == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("damping", [None, 0.7])
def test_weak_orders_along_p_of_t(damping):
    problem = Problem(rates=(-1.0,), damping=damping)
    for moment in (1, 2):
        found = weak_order(FALLING, moment, problem, steps=(128, 256, 512))
        assert found.slope == pytest.approx(1, abs=0.02)
    found, deviation = sampled_moment(FALLING, 8, 2, problem, 20_000)
    assert abs(found - scheme_moment(FALLING, 8, 2, problem)) < 4 * deviation


def test_a_p_of_t_must_be_a_probability_and_f_linear():
    with pytest.raises(UserError, match=r"leaves \[0, 1\]"):
        weak_error("stochastic_depth", 8, p=lambda t: 1 + t)
    with pytest.raises(UserError, match="expected less than 1"):
        falling(1.5)
    with pytest.raises(UserError, match="needs a constant p"):
        weak_error(FALLING, 8, problem=Problem(f=(np.sin,)), samples=2000)


ADDITIVE = get_noise("additive", sigma=0.5)


def test_an_additive_noise_is_the_ornstein_uhlenbeck_process():
    """`dX = a X dt + sigma dB`: its first two moments, and those of Euler's steps, in closed form."""
    a, variance, steps, dt = -0.4, 0.25, 8, 1 / 8
    assert exact_moment(ADDITIVE, 1, Problem()) == pytest.approx(math.exp(a), rel=1e-12)
    wanted = math.exp(2 * a) + variance * (math.exp(2 * a) - 1) / (2 * a)
    assert exact_moment(ADDITIVE, 2, Problem()) == pytest.approx(wanted, rel=1e-12)
    mean, square = 1.0, 1.0
    for _ in range(steps):
        mean, square = (1 + a * dt) * mean, (1 + a * dt) ** 2 * square + dt * variance
    assert scheme_moment(ADDITIVE, steps, 1, Problem()) == pytest.approx(mean, rel=1e-12)
    assert scheme_moment(ADDITIVE, steps, 2, Problem()) == pytest.approx(square, rel=1e-12)
    found, deviation = sampled_moment(ADDITIVE, steps, 2, Problem(), 20_000)
    assert abs(found - square) < 4 * deviation


@pytest.mark.parametrize("problem", [Problem(), Problem(scheme="heun"), Problem(damping=0.7)], ids=str)
def test_the_weak_order_of_an_additive_noise(problem):
    """Euler's and LM's is 1; Heun's method with the same noise in both evaluations keeps its 2 (Platen's scheme)."""
    orders = [weak_order(ADDITIVE, m, problem, (64, 128, 256)).slope for m in (1, 2)]
    assert orders == pytest.approx([2, 2] if problem.scheme == "heun" else [1, 1], abs=0.05)
