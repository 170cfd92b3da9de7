"""FractalNet's expansion rule."""

from fractions import Fraction

import numpy as np
import pytest

from stepnet import UserError, solve
from stepnet.analysis import order
from stepnet.schemes import Fractal
from stepnet.schemes.fractal import ConvolvedFractal, FullFractal


def test_order_2_is_heun():
    f, u0 = (lambda t, u: np.sin(u * t) + np.cos(u[::-1])), np.array([0.3, -0.8])
    assert np.allclose(solve(f, u0, (0, 1), 7, "fractal2").u, solve(f, u0, (0, 1), 7, "heun").u, rtol=0, atol=1e-15)


def test_order_3_is_the_rule_unrolled():
    """`f_3 = (I + f_2 f_2)/2`, `f_2 = (I + E E)/2`, `E = I + dt f`, on maps written out by hand."""
    dt, u0 = 0.3, np.array([0.3, -0.8])

    def base(u):
        return u + dt * np.tanh(u[::-1])

    def two(u):
        return (u + base(base(u))) / 2

    found = solve(lambda u: np.tanh(u[::-1]), u0, (0, dt), 1, "fractal3").u[-1]
    assert np.allclose(found, (u0 + two(two(u0))) / 2, rtol=0, atol=1e-15)


@pytest.mark.parametrize("columns", [1, 3, 4])
def test_a_deeper_fractal_has_order_1(columns):
    """The name says order 3 and more; the trees say 1, for every depth but 2."""
    assert order(Fractal(columns)) == 1 == Fractal(columns).order


def test_fractal_2_has_order_2():
    assert order("fractal2") == 2


@pytest.mark.parametrize("columns", [0, -1, 1.5, "two"])
def test_a_bad_order_is_refused(columns):
    with pytest.raises(UserError, match=r"expected (1 or more|a whole number)"):
        Fractal(columns)


@pytest.mark.parametrize(("k1", "k2", "k3"), [(0.5, 0.5, 1.0), (0.2, 0.8, 1.0), (0.75, 0.5, 0.5), (0.5, 0.25, 1.0)])
def test_the_papers_formula_with_numbers_for_its_convolutions(k1, k2, k3):
    """`k_1 u + k_2 v + f_2(v)` with `v = k_3 u + f_1(u)`, `f_1 = dt f` and `f_2 = dt f/2`.

    Of order 2 for every f only at 1/2, 1/2, 1: Heun's method, and so `fractal2`.
    """

    def step(u, dt):
        v = k3 * u - dt * u**2
        return k1 * u + k2 * v - dt / 2 * v**2

    def error(n):
        u = 1.0
        for _ in range(n):
            u = step(u, 1 / n)
        return abs(u - 0.5)  # u' = -u^2 from 1

    heun = (k1, k2, k3) == (0.5, 0.5, 1.0)
    u = np.array([0.7])
    found = solve(lambda u: -(u**2), u, (0.0, 0.1), 1, "fractal2").u[-1]
    assert (abs(found - step(u, 0.1)) < 1e-15) == heun
    assert (np.log2(error(200) / error(400)) > 1.9) == heun


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_paths_of_different_lengths_solve_an_equation_of_their_own(columns):
    """`2/(c+1) u' = f` where a join has two paths, `c/(2^c - 1) u' = f` where it has c."""
    masses = {ConvolvedFractal: Fraction(2, columns + 1), FullFractal: Fraction(columns, 2**columns - 1)}
    for kind, mass in masses.items():
        scheme = kind(columns)
        assert scheme.equation.mass == mass and order(scheme) == 1
