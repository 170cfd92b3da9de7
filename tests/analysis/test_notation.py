"""The step as a person writes it, derived from the scheme."""

import pytest

from stepnet import get_scheme, list_schemes
from stepnet.analysis import amplification_line, modified_lines, plain_equation, step_lines
from stepnet.analysis.symbols import subject


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
    assert [str(line) for line in step_lines(name)] == wanted


def test_a_number_for_k():
    (line,) = step_lines(get_scheme("lm", k=-0.5))
    assert str(line) == "u_{n+1} = 3/2 u_n - 1/2 u_{n-1} + dt f(u_n)"


def test_modified_equations_and_growth_factors():
    assert [str(line) for line in modified_lines("lm")] == ["(1 + k) u' + (1 - k) dt/2 u'' = f"]
    assert [str(line) for line in modified_lines("leapfrog")] == ["u'' + dt^2/12 u^(4) = f"]
    assert str(amplification_line("backward_euler")) == "(1 - z) zeta - 1 = 0"
    assert str(amplification_line("rk4")) == "zeta - (1 + z + z^2/2 + z^3/6 + z^4/24) = 0"
    assert plain_equation(subject("lm").equation) == "(1 + k) u' = f"


@pytest.mark.parametrize("name", list_schemes())
def test_latex_is_balanced(name):
    for line in (*step_lines(name), *modified_lines(name), amplification_line(name)):
        assert line.latex.count("{") == line.latex.count("}")
        assert line.latex.count(r"\left") == line.latex.count(r"\right")
        assert "**" not in line.latex and "*" not in str(line)


def test_latex_writes_delta_t():
    (line,) = step_lines("lm")
    assert line.latex.startswith(r"u_{n+1} = (1 - k) u_{n} + k u_{n-1} + \Delta t f")
    assert modified_lines("euler")[0].latex == r"u' + \frac{\Delta t}{2} u'' = f"
