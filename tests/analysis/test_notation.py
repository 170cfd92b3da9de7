"""The step as a person writes it, derived from the scheme."""

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy.parsing.sympy_parser import convert_xor, implicit_multiplication, parse_expr, standard_transformations

from stepnet import analyse, get_scheme, list_schemes
from stepnet.analysis.notation import Line
from stepnet.analysis.symbols import dt, k


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("euler", ["u_{n+1} = u_n + dt f(u_n)"]),
        ("lm", ["u_{n+1} = (1 - k) u_n + k u_{n-1} + dt f(u_n)"]),
        ("midpoint2", ["u_{n+1} = u_{n-1} + 2 dt f(u_n)"]),
        ("leapfrog", ["u_{n+1} = 2 u_n - u_{n-1} + dt^2 f(u_n)"]),
        ("ab2", ["u_{n+1} = u_n + 3 dt/2 f(u_n) - dt/2 f(u_{n-1})"]),
        ("backward_euler", ["u_{n+1} = u_n + dt f(u_{n+1})"]),
        ("coupled", ["X_{n+1} = X_n + dt f(Y_n)", "Y_{n+1} = Y_n + dt g(X_{n+1})"]),
        ("midpoint", ["f_1 = f(u_n)", "f_2 = f(u_n + dt/2 f_1)", "u_{n+1} = u_n + dt f_2"]),
        ("neumann2", ["f_1 = f(u_n)", "f_2 = f(dt f_1)", "u_{n+1} = u_n + dt f_1 + dt f_2"]),
    ],
)
def test_steps(name, wanted):
    assert [str(line) for line in analyse(name).step_lines] == wanted


def test_a_number_for_k():
    (line,) = analyse("lm", k=-0.5).step_lines
    assert str(line) == "u_{n+1} = 3/2 u_n - 1/2 u_{n-1} + dt f(u_n)"


def test_modified_equations_and_growth_factors():
    assert [str(line) for line in analyse("lm").modified_lines()] == ["(1 + k) u' + (1 - k) dt/2 u'' = f"]
    assert [str(line) for line in analyse("leapfrog").modified_lines()] == ["u'' + dt^2/12 u^(4) = f"]
    assert str(analyse("backward_euler").amplification_line) == "(1 - z) zeta - 1 = 0"
    assert str(analyse("rk4").amplification_line) == "zeta - (1 + z + z^2/2 + z^3/6 + z^4/24) = 0"
    assert analyse("lm").equation_line == "(1 + k) u' = f"


@pytest.mark.parametrize("name", list_schemes())
def test_latex_is_balanced(name):
    found = analyse(name)
    modified = found.modified_lines() if found.equation.mass else []  # x0 solves no equation
    for line in (*found.step_lines, *modified, found.amplification_line):
        assert line.latex.count("{") == line.latex.count("}")
        assert line.latex.count(r"\left") == line.latex.count(r"\right")
        assert "**" not in line.latex and "*" not in str(line)


def test_latex_writes_delta_t():
    (line,) = analyse("lm").step_lines
    assert line.latex.startswith(r"u_{n+1} = (1 - k) u_{n} + k u_{n-1} + \Delta t f")
    assert analyse("euler").modified_lines()[0].latex == r"u' + \frac{\Delta t}{2} u'' = f"


ATOM = st.sampled_from([k, 1 + k, 3 + k, k - 2, dt, sympy.Integer(2), sympy.Integer(-3), sympy.Symbol("a") - 1])


@given(
    above=st.lists(ATOM, min_size=1, max_size=4), below=st.lists(st.sampled_from([1 + k, sympy.Integer(2)]), max_size=2)
)
@settings(max_examples=60, deadline=None)
def test_no_factor_of_a_coefficient_is_lost(above, below):
    c = sympy.Mul(*above) / sympy.Mul(*below)
    x = sympy.Symbol("x")
    written = str(Line(((sympy.Integer(1), x),), ((c, x),))).split(" = ")[1]
    rules = (*standard_transformations, implicit_multiplication, convert_xor)
    names = {"k": k, "dt": dt, "a": sympy.Symbol("a"), "x": x}
    assert sympy.simplify(parse_expr(written, names, transformations=rules) - c * x) == 0, written


def test_lm_over_heun_and_a_coefficient_of_another_name():
    (line,) = analyse("lm+heun").modified_lines()
    assert str(line) == "(1 + k) u' = f + k (3 + k) dt/(2 (1 + k)^2) f'f"
    found = analyse(get_scheme("lm", k=sympy.Symbol("a")))
    assert str(found.step_lines[0]) == "u_{n+1} = (1 - a) u_n + a u_{n-1} + dt f(u_n)"
    assert str(found.modified_lines()[0]) == "(1 + a) u' + (1 - a) dt/2 u'' = f"
