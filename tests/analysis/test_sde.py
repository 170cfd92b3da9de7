"""The stochastic equations that belong to the noises."""

import sympy
from sympy import sqrt

from stepnet.analysis.sde import X, Y, stochastic_equation, stochastic_step, xi
from stepnet.analysis.symbols import dt
from stepnet.schemes.noises import falling, get_noise, p, t

f, f1, f2 = sympy.symbols("f f1 f2")


def test_the_equations_of_section_3_1():
    depth, shake = stochastic_equation("stochastic_depth"), stochastic_equation("shake_shake")
    assert sympy.simplify(depth.drift - p * f) == 0
    assert sympy.simplify(depth.diffusion - sqrt(p * (1 - p)) * f) == 0
    assert sympy.simplify(shake.drift - (f1 + f2) / 2) == 0
    assert sympy.simplify(shake.diffusion - (f1 - f2) / sqrt(12)) == 0
    assert str(depth) == "dX = p f dt + sqrt(p (1 - p)) f dB"
    assert str(shake) == "dX = (f1 + f2)/2 dt + sqrt(3) (f1 - f2)/6 dB"
    assert str(stochastic_equation("gaussian")) == "dX = f dt + sigma f dB"


def test_the_equation_of_section_3_2_comes_out_of_lm_s_step():
    """`dX = Y dt, dY = p f dt + sqrt(p(1-p)) f dB - g Y dt`: with dt in the drift and the sign of `Y' = f - g Y`."""
    g = sympy.Symbol("g")
    pair = stochastic_equation("stochastic_depth", damping=g)
    assert sympy.simplify(pair.drift - (p * f - g * Y)) == 0
    assert sympy.simplify(pair.diffusion - sqrt(p * (1 - p)) * f) == 0
    assert str(pair) == "dX = Y dt, dY = (p f - g Y) dt + sqrt(p (1 - p)) f dB"
    moved = stochastic_step(get_noise("stochastic_depth"), (lambda x: f,), (X, Y), xi, dt, g)[0] - X
    assert sympy.simplify(sympy.limit(moved.coeff(xi, 0) / dt, dt, 0) - Y) == 0


def test_p_may_depend_on_time():
    equation = stochastic_equation("stochastic_depth", p=falling(0.8))
    assert sympy.simplify(equation.drift - (1 - t / 5) * f) == 0
    assert sympy.simplify(equation.diffusion**2 - (1 - t / 5) * t / 5 * f**2) == 0
    assert str(stochastic_equation("stochastic_depth", p=lambda t: 1 - t / 5)) == str(equation)
    assert str(equation).startswith("dX = (1 - t/5) f dt + ")


def test_an_additive_noise_has_a_constant_diffusion():
    equation = stochastic_equation("additive", sigma=sympy.Rational(1, 3))
    assert (equation.drift, equation.diffusion) == (f, sympy.Rational(1, 3))
    assert str(stochastic_equation("additive")) == "dX = f dt + sigma dB"
    assert str(stochastic_equation("additive", damping=0.5)) == "dX = Y dt, dY = (f - 1/2 Y) dt + sigma dB"
