"""Lax–Friedrichs and Lax–Wendroff: the modified equations derived, and a run that diffuses and disperses."""

from functools import partial

import numpy as np
import pytest
import sympy

from stepnet import UserError
from stepnet.analysis import LAX_FRIEDRICHS, LAX_WENDROFF, modified_transport
from stepnet.analysis.symbols import dt
from stepnet.analysis.transport import c, dx, modified_solution, r, run, t, u, x


def left():
    return u.diff(t) - c * u.diff(x)


def test_lax_friedrichs_is_the_paper_s():
    equation = modified_transport(LAX_FRIEDRICHS)
    assert sympy.expand(equation.lhs - left()) == 0
    assert sympy.simplify(equation.rhs - dx**2 / (2 * dt) * (1 - r**2) * u.diff(x, 2)) == 0


def test_lax_wendroff_has_the_other_sign_and_r_is_c_dt_over_dx():
    """The paper prints `(r^2 - 1)` and `r = 2 dt/dx`; the derivation gives `(1 - r^2)` with `r = c dt/dx`."""
    correction = modified_transport(LAX_WENDROFF).rhs
    assert sympy.simplify(correction - c * dx**2 / 6 * (1 - r**2) * u.diff(x, 3)) == 0
    assert sympy.simplify(correction - c * dx**2 / 6 * (r**2 - 1) * u.diff(x, 3)) != 0
    # at r = c dt/dx = 1 both schemes shift the grid by one point and are exact; at the printed r = 1 they are not
    values = np.random.default_rng(0).normal(size=16)
    for stencil in (LAX_FRIEDRICHS, LAX_WENDROFF):
        assert np.allclose(run(stencil, values, 1.0, 5), np.roll(values, -5), rtol=0, atol=1e-14)
        assert not np.allclose(run(stencil, values, 0.5, 10), np.roll(values, -5), rtol=0, atol=1e-2)


def decay_and_excess_speed(solve, stencil, ratio, n):
    """The decay rate (diffusion) and excess speed (dispersion) of the second wave after n steps, which take time r."""
    start = np.cos(4 * np.pi * np.arange(n) / n)
    exact = modified_solution(stencil, start, ratio, n, terms=0)
    factor = np.fft.fft(solve(stencil, start, ratio, n))[2] / np.fft.fft(exact)[2]
    return -np.log(np.abs(factor)) / ratio, np.angle(factor) / (4 * np.pi * ratio)


@pytest.mark.parametrize("stencil", [LAX_FRIEDRICHS, LAX_WENDROFF])
@pytest.mark.parametrize("ratio", [0.3, 0.8])
def test_the_run_decays_and_lags_as_the_modified_equation_says(stencil, ratio):
    modified = partial(modified_solution, terms=2)
    measured, predicted = (decay_and_excess_speed(solve, stencil, ratio, 200) for solve in (run, modified))
    assert measured == pytest.approx(predicted, rel=0.01)


def test_one_is_diffusive_and_the_other_dispersive():
    """A wave in Lax–Friedrichs loses its height; in Lax–Wendroff it keeps it and lags, as the sign (1 - r^2) says."""
    friedrichs, wendroff = (decay_and_excess_speed(run, each, 0.5, 100) for each in (LAX_FRIEDRICHS, LAX_WENDROFF))
    assert friedrichs[0] > 100 * wendroff[0] > 0
    assert wendroff[1] < 0
    profile = np.where(np.abs(np.arange(200) - 100) < 40, 1.0, 0.0)
    smooth, wiggly = run(LAX_FRIEDRICHS, profile, 0.5, 100), run(LAX_WENDROFF, profile, 0.5, 100)
    assert smooth.max() <= 1 + 1e-12 and smooth.min() >= -1e-12  # diffusion makes no new extremes
    assert wiggly.max() > 1.05 and wiggly.min() < -0.05  # dispersion does


def test_a_bad_run_is_refused():
    with pytest.raises(UserError, match="r = nan"):
        run(LAX_WENDROFF, np.ones(4), float("nan"), 1)


def test_a_run_is_nearer_to_the_modified_equation_than_to_its_own():
    grid = np.arange(200) / 200
    start = np.exp(-(((grid - 0.5) / 0.1) ** 2))
    for stencil in (LAX_FRIEDRICHS, LAX_WENDROFF):
        found = run(stencil, start, 0.5, 400)
        own, modified = (modified_solution(stencil, start, 0.5, 400, terms) for terms in (0, 1))
        assert np.abs(own - start).max() < 1e-12  # once around
        assert np.abs(found - modified).max() < 0.1 * np.abs(found - own).max()
