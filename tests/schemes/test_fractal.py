"""FractalNet's expansion rule."""

import numpy as np
import pytest

from stepnet import UserError, solve
from stepnet.analysis import order
from stepnet.schemes import Fractal


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
    with pytest.raises(UserError, match="whole number from 1 up"):
        Fractal(columns)
