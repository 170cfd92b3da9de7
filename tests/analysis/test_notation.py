"""The step as a person writes it, derived from the scheme."""

import pytest

from stepnet import analyse, list_schemes


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
    for line in (*found.step_lines, *found.modified_lines(), found.amplification_line):
        assert line.latex.count("{") == line.latex.count("}")
        assert line.latex.count(r"\left") == line.latex.count(r"\right")
        assert "**" not in line.latex and "*" not in str(line)


def test_latex_writes_delta_t():
    (line,) = analyse("lm").step_lines
    assert line.latex.startswith(r"u_{n+1} = (1 - k) u_{n} + k u_{n-1} + \Delta t f")
    assert analyse("euler").modified_lines()[0].latex == r"u' + \frac{\Delta t}{2} u'' = f"
