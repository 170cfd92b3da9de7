"""Orders: found by trees, measured as slopes, and the two held against each other for every scheme there is."""

from fractions import Fraction

import numpy as np
import pytest
import sympy

from stepnet import UserError, get_scheme, list_schemes, solve
from stepnet.analysis import convergence, order
from stepnet.schemes import Equation, LinearMultistep, RungeKutta, Tableau

half, quarter = Fraction(1, 2), Fraction(1, 4)

# All conditions of order 4 but two hold; those for f''(f, f'f) and f'f''(f, f), which are one differential when u is a
# single number, hold only in their sum.
SCALAR_FOUR = Tableau(
    ((), (quarter,), (3 * quarter, -quarter), (-8, 13, -4)), (Fraction(1, 6), 0, Fraction(2, 3), Fraction(1, 6))
)


@pytest.mark.parametrize("name", list_schemes())
def test_the_measured_order_is_the_symbolic_one(name):
    """On a nonlinear, non-autonomous system (linear where the scheme is for linear f), against DOP853."""
    scheme = get_scheme(name)
    assert order(scheme) == scheme.order
    assert convergence(scheme).slope == pytest.approx(order(scheme), abs=0.15)


def test_a_scalar_equation_is_not_enough():
    """A tableau of order 4 for every autonomous scalar equation, and 3 for systems: the trees say 3."""
    scheme = RungeKutta(SCALAR_FOUR, order=3)
    scheme.name = "scalar four"
    assert order(scheme) == 3
    assert convergence(scheme).slope == pytest.approx(3, abs=0.15)

    def error(n):
        return abs(solve(lambda u: -np.sin(u) - u**2 / 2, np.array([1.5]), (0, 1), n, scheme).u[-1][0] - exact)

    exact = solve(lambda u: -np.sin(u) - u**2 / 2, np.array([1.5]), (0, 1), 4000, "rk4").u[-1][0]
    assert np.log2(error(40) / error(80)) == pytest.approx(4, abs=0.15)


def test_classical_methods_have_their_classical_orders():
    """Adams–Bashforth 4, Störmer's explicit formula of order 3 for u'' = f, and Dormand–Prince 5."""
    adams = LinearMultistep((1, -1, 0, 0, 0), (0, *(Fraction(b, 24) for b in (55, -59, 37, -9))))
    assert order(adams) == 4

    class Stormer(LinearMultistep):
        derivative = 2

    assert order(Stormer((1, -2, 1, 0), (0, *(Fraction(b, 12) for b in (13, -2, 1))))) == 3
    a = [
        [],
        ["1/5"],
        ["3/40", "9/40"],
        ["44/45", "-56/15", "32/9"],
        ["19372/6561", "-25360/2187", "64448/6561", "-212/729"],
        ["9017/3168", "-355/33", "46732/5247", "49/176", "-5103/18656"],
    ]
    b = ["35/384", "0", "500/1113", "125/192", "-2187/6784", "11/84"]
    assert order(RungeKutta(Tableau([map(Fraction, row) for row in a], map(Fraction, b)))) == 5


def test_time_counts():
    """Abscissae that are not row sums would be order 2 for f(u) and 1 for f(t, u): the trees see time."""

    class Late(RungeKutta):
        def increment(self, past, dt, k):
            point = past[0]
            return dt * point.rhs(point.u + dt * half * point.f, 1, 1)  # the midpoint rule, but f at t + dt

    scheme = Late(get_scheme("midpoint").tableau, order=1)
    scheme.name = "late"
    assert order(scheme) == 1 and order("midpoint") == 2


def test_lm_has_order_1_against_its_own_equation_and_0_against_the_paper_s():
    """It solves `(1 + k) u' = f` for every k; `u' = f` only at k = 0."""
    assert order("lm") == 1
    assert order("lm", against=Equation()) == 0
    assert order(get_scheme("lm", k=-0.5), against=Equation()) == 0
    assert order(get_scheme("lm", k=0), against=Equation()) == 1
    assert order(get_scheme("lm", k=1)) == 2  # the two-step midpoint rule
    assert order(get_scheme("lm", k=-1)) == 0  # 0 u' = f
    assert order(get_scheme("lm", k=sympy.sqrt(2) / 2)) == 1


def test_an_order_against_a_system_of_another_kind_is_refused():
    with pytest.raises(UserError, match="coupled solves"):
        order("coupled", against=Equation())


def test_a_slope_needs_errors_above_rounding_and_a_number_for_k():
    with pytest.raises(UserError, match="are above rounding"):
        convergence("rk4", steps=(4000,))
    with pytest.raises(UserError, match="a run needs a number for k"):
        convergence(get_scheme("lm", k=sympy.Symbol("k")))


@pytest.mark.parametrize("name", ["lm+neumann2", "lm+heun", "lm+fractal3", "lm+picard3", "lm+rk4", "lm+coupled"])
@pytest.mark.parametrize("k", [-0.4, 0.3])
def test_lm_over_a_one_step_method_has_the_order_that_runs_have(name, k):
    """LM's carry over any increment: order 1 against `(1 + k) u' = f`, for every k but 0."""
    scheme = get_scheme(name, k=k)
    assert order(name) == order(scheme) == 1
    assert convergence(scheme).slope == pytest.approx(1, abs=0.15)
    assert order(get_scheme(name, k=0)) == order(name.removeprefix("lm+"))
