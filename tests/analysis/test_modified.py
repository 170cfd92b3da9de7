"""Modified equations: the paper's, the classical ones, and a run that follows them."""

import numpy as np
import pytest
import sympy
from scipy.integrate import solve_ivp

from stepnet import UserError, get_scheme, solve
from stepnet.analysis import between_states, modified_equation
from stepnet.analysis.modified import differential_name, f, t, u
from stepnet.analysis.symbols import dt, k


def D(n):
    return u(t).diff(t, n)


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("euler", D(1) + dt / 2 * D(2)),
        ("lm", (1 + k) * D(1) + (1 - k) * dt / 2 * D(2)),
        ("midpoint2", D(1) + dt**2 / 6 * D(3)),
        ("leapfrog", D(2) + dt**2 / 12 * D(4)),
        ("ab2", D(1) + 5 * dt**2 / 12 * D(3)),
        ("ab3", D(1) + 3 * dt**3 / 8 * D(4)),
        ("backward_euler", D(1) - dt / 2 * D(2)),
    ],
)
def test_in_derivatives(name, left):
    """Euler and lm as in the paper; the others with their classical error constants."""
    equation = modified_equation(name)
    assert sympy.expand(equation.lhs - left) == 0 and equation.rhs == f


def test_more_terms_of_lm():
    third = modified_equation("lm", terms=3).lhs - modified_equation("lm", terms=2).lhs
    assert sympy.expand(third - (1 + k) * dt**2 / 6 * D(3)) == 0


def test_in_elementary_differentials():
    """Euler's is the classical `f - dt/2 f'f + dt^2 (f''(f,f)/12 + f'f'f/3)` (Hairer, Lubich, Wanner, IX.1)."""
    S = sympy.Symbol
    euler = modified_equation("euler", terms=3, form="differentials").rhs
    wanted = f - dt / 2 * S("f'f") + dt**2 * (S("f''(f, f)") / 12 + S("f'f'f") / 3)
    assert sympy.expand(euler - wanted) == 0
    backward = modified_equation("backward_euler", terms=3, form="differentials").rhs
    assert sympy.expand(backward - euler.subs(dt, -dt)) == 0  # its adjoint
    midpoint = modified_equation("midpoint").rhs
    assert sympy.expand(midpoint - f + dt**2 * (S("f''(f, f)") / 24 + S("f'f'f") / 6)) == 0


def test_a_pair():
    """Symplectic Euler: `X' = f - dt/2 f'g`, `Y' = g + dt/2 g'f`."""
    first, second = modified_equation("coupled")
    assert sympy.expand(first.rhs - (f - dt / 2 * sympy.Symbol("f'g"))) == 0
    assert sympy.expand(second.rhs - (sympy.Symbol("g") + dt / 2 * sympy.Symbol("g'f"))) == 0


@pytest.mark.parametrize("name", ["euler", "heun", "midpoint", "picard3", "fractal3"])
def test_the_run_follows_its_modified_equation(name):
    """One more term of the field makes the numerical flow agree to one more order: u' = sin(u) + u^2 / 2."""
    x = sympy.Symbol("x")
    field = sympy.sin(x) + x**2 / 2

    def value(tree):  # a scalar elementary differential
        return field.diff(x, len(tree) - 1) * sympy.prod([value(child) for child in tree[1:]])

    known = {differential_name(tree): value(tree) for tree in TREES}
    equation = modified_equation(name, terms=2, form="differentials").rhs
    order = sympy.degree(sympy.expand(equation), dt)
    modified = equation.subs({symbol: known[symbol.name] for symbol in equation.free_symbols - {dt}})
    errors = []
    for n in (20, 40):
        slope = sympy.lambdify(x, modified.subs(dt, sympy.Rational(1, n)), "numpy")
        wanted = solve_ivp(lambda _, y, slope=slope: slope(y), (0, 1), [0.6], method="DOP853", rtol=1e-13, atol=1e-14)
        found = solve(lambda y: np.sin(y) + y**2 / 2, np.array([0.6]), (0, 1), n, name).u[-1][0]
        errors.append(abs(found - wanted.y[0, -1]))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order + 1, abs=0.35)


LEAF = ("f",)
TREES = [LEAF, ("f", LEAF), ("f", LEAF, LEAF), ("f", ("f", LEAF))]


def test_names_of_differentials():
    assert [differential_name(tree) for tree in TREES] == ["f", "f'f", "f''(f, f)", "f'f'f"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rk4", 2, "derivatives"), "rk4 is no linear multistep method"),
        (("ab2", 2, "differentials"), "ab2 is no one-step method"),
        (("leapfrog", 2, "differentials"), "leapfrog is no one-step method"),
        (("euler", 2, "words"), "form = 'words'"),
        (("euler", 0), "terms = 0"),
    ],
)
def test_a_form_that_a_scheme_lacks_is_told(arguments, message):
    with pytest.raises(UserError, match=message):
        modified_equation(*arguments)


def test_a_number_for_k_gives_numbers():
    equation = modified_equation(get_scheme("lm", k=-0.5))
    assert sympy.expand(equation.lhs - (D(1) / 2 + 3 * dt / 4 * D(2))) == 0


def test_a_step_that_evaluates_f_between_its_states_is_known():
    assert [name for name in ("euler", "lm", "ab3", "backward_euler") if between_states(name)] == []
    assert all(between_states(name) for name in ("heun", "rk4", "neumann2", "picard2"))
