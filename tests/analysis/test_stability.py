"""Stability: exact limits, and analysis held against simulation."""

from fractions import Fraction
from itertools import repeat

import numpy as np
import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stepnet import UserError, get_scheme, list_schemes
from stepnet.analysis import (
    analyse,
    stability_interval,
    stability_region,
    zero_stable,
)
from stepnet.analysis.symbols import k, z
from stepnet.schemes import LinearMultistep, Point, RungeKutta, Tableau, march

quarters = st.integers(-8, 8).map(lambda n: Fraction(n, 4))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("euler", 2),
        ("heun", 2),
        ("ab2", 1),
        ("ab3", sympy.Rational(6, 11)),
        ("midpoint2", 0),
        ("leapfrog", 4),
        ("backward_euler", sympy.oo),
        ("coupled", 0),
        ("neumann2", 1),
        ("lm", 2 - 2 * k),
    ],
)
def test_intervals_on_the_negative_axis_are_exact(name, wanted):
    assert stability_interval(name) == wanted


def test_the_interval_of_rk4_is_an_algebraic_number():
    limit = stability_interval("rk4")
    assert sympy.N(limit, 10) == pytest.approx(2.785293563, abs=1e-9)
    x = sympy.Symbol("x")
    assert sympy.minimal_polynomial(limit, x) == x**3 - 4 * x**2 + 12 * x - 24


def test_polynet_allows_smaller_steps_than_euler_on_the_negative_axis():
    """The paper says larger. A truncation is a polynomial: poly-2 stops at 1, poly-3 at 1.353, Euler only at 2.

    What grows is the limit on the imaginary axis, where Euler has none; backward Euler itself has no limit at all.
    """
    assert stability_interval("neumann2") == 1 < stability_interval("neumann3") < stability_interval("euler") == 2
    assert float(stability_interval("neumann3")) == pytest.approx(1.3532, abs=1e-4)
    assert float(analyse("neumann3").imaginary_limit) == pytest.approx(1.2720, abs=1e-4)
    assert (
        analyse("euler").imaginary_limit
        == 0
        < analyse("neumann2").imaginary_limit
        == 1
        < analyse("neumann3").imaginary_limit
    )
    assert stability_interval("backward_euler") == analyse("backward_euler").imaginary_limit == sympy.oo
    # and no odd or even m does better on the negative axis than Euler
    assert all(stability_interval(f"neumann{m}") < 2 for m in (4, 5, 6))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("euler", 0), ("rk4", 2 * sympy.sqrt(2)), ("midpoint2", 1), ("ab3", 12 * sympy.sqrt(11) / 55), ("coupled", 2)],
)
def test_limits_on_the_imaginary_axis_are_exact(name, wanted):
    assert sympy.simplify(analyse(name).imaginary_limit - wanted) == 0


def test_at_k_1_lm_gains_the_imaginary_axis():
    """For every other k it has none; at k = 1 it is the two-step midpoint rule with half the step, of limit 2."""
    limit = analyse("lm").imaginary_limit
    assert limit.subs(k, 1) == 2 == analyse(get_scheme("lm", k=1)).imaginary_limit
    for value in (-0.99, -0.5, 0, 0.5, 0.99):
        assert limit.subs(k, value) == 0 == analyse(get_scheme("lm", k=value)).imaginary_limit


@pytest.mark.parametrize("name", ["leapfrog", "midpoint2", "coupled", "euler", "rk4", "ab3", "neumann3"])
def test_an_end_of_an_interval_is_stable_where_a_run_stays_bounded(name):
    """At a double root on the circle the run grows linearly: the end is then not part of the interval."""
    scheme = get_scheme(name)
    for limit, direction in ((stability_interval(scheme), -1), (analyse(scheme).imaginary_limit, sympy.I)):
        if limit > 0:
            matrix = np.array(analyse(scheme).companion.subs(z, direction * sympy.N(limit, 30)).tolist(), dtype=complex)
            grown = [np.abs(np.linalg.matrix_power(matrix, n)).max() for n in (500, 1000)]
            assert analyse(scheme).stable(direction * limit) is bool(grown[1] < 1.5 * grown[0])
            assert analyse(scheme).stable(direction * limit * Fraction(99, 100)) is True
            assert analyse(scheme).stable(direction * limit * Fraction(101, 100)) is False


def test_at_k_minus_1_lm_is_stable_between_0_and_4_and_at_neither_end():
    scheme = get_scheme("lm", k=-1)
    assert stability_interval(scheme) == 4
    assert [analyse(scheme).stable(-x) for x in (0, 1, 3, 4)] == [False, True, True, False]
    assert analyse("leapfrog").stable(0) is True  # for u'' = f the same double root at 0 is no fault


def test_a_pole_is_not_stable():
    assert [analyse("backward_euler").stable(x) for x in (-1, 0, 1, 2, 3)] == [True, True, False, True, True]


def test_a_symbol_of_any_name_in_the_coefficients():
    a, b = sympy.symbols("a b")
    scheme = LinearMultistep((1, a - 1, -a), (0, 1 + a, 0))  # lm with the step that solves u' = f
    assert zero_stable(scheme) == sympy.Interval.Lopen(-1, 1)
    assert sympy.simplify(stability_interval(scheme) - 2 * (1 - a) / (1 + a)) == 0
    assert analyse(scheme).stable(-2 * (1 - a) / (1 + a)) and not analyse(scheme).stable(-3 * (1 - a) / (1 + a))
    assert zero_stable(LinearMultistep((1, -1, 0), (0, 1 + a, -a))) is True  # for every a
    with pytest.raises(UserError, match="the symbols a, b in one scheme: give numbers for all but one"):
        stability_interval(LinearMultistep((1, a - 1, -a), (0, b, 0)))
    with pytest.raises(UserError, match="has a symbol a: give a number"):
        analyse(scheme).growth([0.0])


def test_an_irrational_k():
    scheme = get_scheme("lm", k=sympy.sqrt(2) / 2)
    assert zero_stable(scheme) is True and analyse(scheme).imaginary_limit == 0
    assert stability_interval(scheme) == 2 - sympy.sqrt(2)


@pytest.mark.parametrize("value", [-0.99, -0.5, -0.25, 0, 0.3, 0.875, 1])
def test_lm_is_stable_to_2_minus_2_k(value):
    assert stability_interval(get_scheme("lm", k=value)) == pytest.approx(2 * (1 - value))


def test_lm_is_zero_stable_for_minus_1_excluded_to_1_included():
    """The paper's closed interval is not exact: at k = -1 the root 1 is double, and a run grows linearly."""
    assert zero_stable("lm") == sympy.Interval.Lopen(-1, 1)
    assert zero_stable(get_scheme("lm", k=-0.999)) is True
    assert zero_stable(get_scheme("lm", k=-1)) is False
    assert zero_stable(get_scheme("lm", k=1)) is True
    assert [get_scheme("lm").zero_stable_at(k) for k in (-1, -0.999, 1, 1.001)] == [False, True, True, False]
    past = [Point(np.zeros(1))]
    states = list(march(get_scheme("lm", k=-1), repeat(lambda u, c, i: 0 * u, 100), np.ones(1), past=past))
    assert [float(u[0]) for u in states] == list(range(2, 102))


def test_a_double_root_is_no_fault_of_an_equation_of_second_order():
    assert zero_stable("leapfrog") is True


@pytest.mark.parametrize("name", list_schemes())
def test_every_scheme_is_zero_stable_and_its_limits_agree_with_the_grid(name):
    scheme = get_scheme(name)
    assert zero_stable(scheme) is True
    for limit, direction in ((stability_interval(scheme), -1), (analyse(scheme).imaginary_limit, 1j)):
        end = 20.0 if limit == sympy.oo else float(limit)
        if end > 0:
            assert analyse(scheme).growth(direction * np.linspace(0, end, 101)[1:-1]).max() <= 1 + 1e-7
        if limit != sympy.oo:
            assert analyse(scheme).growth(direction * (end + np.linspace(0.01, 0.05, 20))).max() > 1


def test_a_region_is_a_grid_of_growth_factors():
    region = stability_region("euler", extent=(-3, 1, -2, 2), n=201)
    assert region.radius.shape == (201, 201)
    assert np.allclose(region.radius, np.abs(1 + region.re + 1j * region.im), atol=1e-12)
    area = (region.radius <= 1).mean() * 16
    assert area == pytest.approx(np.pi, rel=0.05)


def test_a_region_needs_a_number_for_k_and_a_grid():
    with pytest.raises(UserError, match="'lm' has a symbol k: give a number"):
        stability_region("lm")
    with pytest.raises(UserError, match="n = 1"):
        stability_region("euler", n=1)


def run(scheme, rhs, steps, start):
    """The largest value in each tenth of a run from given past states."""
    u0, *older = (np.array([value]) for value in start)
    f = lambda u, c, i: rhs * u  # noqa: E731
    states = march(scheme, repeat(f, steps), u0, 1, past=[Point(u, f) for u in older])
    values = np.abs(np.array([float(u[0]) for u in states]))
    return values.reshape(10, -1).max(axis=1)


@settings(max_examples=40)
@given(st.lists(quarters, min_size=1, max_size=2), st.integers(0, 2**20))
def test_zero_stability_agrees_with_simulation(free, seed):
    """Random alpha of two and three steps; for dt -> 0 the run is `sum alpha_j u_{n+1-j} = 0`."""
    alpha = (1, *free, -1 - sum(free))
    scheme = LinearMultistep(alpha, (0, 1, *([0] * len(free))))
    start = np.random.default_rng(seed).normal(size=scheme.steps)
    with np.errstate(over="ignore", invalid="ignore"):
        tenths = run(scheme, 0.0, 1000, start)
    grows = not np.isfinite(tenths[-1]) or tenths[-1] > 3 * tenths[:2].max()
    assert zero_stable(scheme) is not grows


@settings(max_examples=15)
@given(quarters, quarters, st.lists(quarters, min_size=3, max_size=3))
def test_the_interval_agrees_with_simulation_for_random_methods(b2, b3, a):
    tableau = Tableau(((), (a[0],), (a[1], a[2])), (1 - b2 - b3, b2, b3))
    assert runs_on_both_sides(RungeKutta(tableau)) == ("bounded", "unbounded")


@settings(max_examples=15)
@given(st.integers(-3, 4).map(lambda n: Fraction(n, 4)), quarters, quarters)
def test_the_interval_agrees_with_simulation_for_random_multistep_methods(weight, b1, b2):
    assume(b1 + b2 != 0 and (1 + weight) / (b1 + b2) > 0)  # a positive mass: u' = -u is damped
    scheme = LinearMultistep((1, weight - 1, -weight), (0, b1, b2))
    assert zero_stable(scheme)
    assert runs_on_both_sides(scheme) == ("bounded", "unbounded")


def runs_on_both_sides(scheme):
    """What becomes of runs just within the stability interval and just beyond it."""
    limit = stability_interval(scheme)
    assume(limit != sympy.oo)
    end, start = float(limit), [1.0, -0.3][: scheme.steps]
    within = 0.0
    if end > 0:
        assert analyse(scheme).growth(-np.linspace(0, end, 200)[:-1]).max() <= 1 + 1e-7
        within = run(scheme, -0.97 * end, 400, start).max()
    beyond = end + np.linspace(1e-4, 0.05, 400) * max(end, 1)
    factors = analyse(scheme).growth(-beyond)
    assert factors.max() > 1
    steps = 10 * int(np.ceil(np.log(1e6) / np.log(factors.max()) / 10) + 10)
    assume(steps < 20_000)
    with np.errstate(over="ignore", invalid="ignore"):
        last = run(scheme, -float(beyond[factors.argmax()]), steps, start)[-1]
    return tuple("bounded" if size < 1e3 else "unbounded" for size in (within, last))


@pytest.mark.parametrize("name", ["lm+neumann2", "lm+heun", "lm+fractal2"])
@pytest.mark.parametrize("value", [-0.5, 0.25])
def test_lm_over_a_one_step_method_is_stable_where_runs_stay_bounded(name, value):
    scheme = get_scheme(name, k=value)
    assert zero_stable(name) == sympy.Interval.Lopen(-1, 1)
    end = float(stability_interval(scheme))
    assert run(scheme, -0.97 * end, 400, [1.0, -0.3]).max() < 1e3
    assert run(scheme, -1.05 * end, 2000, [1.0, -0.3])[-1] > 1e3


def test_the_interval_of_lm_over_poly_2_does_not_depend_on_k():
    """`u + F + F^2` has the limit 1 under Euler's carry, and under LM's for every k but 1."""
    limit = stability_interval("lm+neumann2")
    assert limit.subs(k, 0) == limit.subs(k, Fraction(-1, 2)) == 1 and limit.subs(k, 1) == 0


def test_a_limit_that_is_no_short_formula_in_k_is_told_soon():
    """Over rk4 the limit is a root of degree 4 with k in it: a number for k has one."""
    with pytest.raises(UserError, match="not one formula in k: give a number for k"):
        stability_interval("lm+rk4")
    assert float(stability_interval(get_scheme("lm+rk4", k=0))) == pytest.approx(2.785293563, abs=1e-9)
