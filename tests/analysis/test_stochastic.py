"""The stochastic equations that belong to the noises."""

import sympy
from sympy import sqrt

from stepnet.analysis.noise_laws import p
from stepnet.analysis.stochastic import stochastic_equation

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
