"""Explicit Runge–Kutta methods: tableaux that check themselves, and agreement with torchdiffeq."""

from fractions import Fraction

import numpy as np
import pytest
import sympy
import torch
import torchdiffeq

from stepnet import UserError, get_scheme, solve
from stepnet.analysis import order
from stepnet.schemes import RungeKutta, Tableau

U0 = torch.tensor([0.7, -0.4, 0.2], dtype=torch.float64)


def f(t, u):
    return torch.sin(u.flip(0) * t) - u**3 + torch.cos(3 * torch.as_tensor(t, dtype=u.dtype))


# torchdiffeq's rk4 is the 3/8 rule
@pytest.mark.parametrize(
    ("ours", "theirs"), [("euler", "euler"), ("midpoint", "midpoint"), ("heun", "heun2"), ("rk4_38", "rk4")]
)
def test_agrees_with_torchdiffeq(ours, theirs):
    t = torch.linspace(0, 2, 41, dtype=torch.float64)
    wanted = torchdiffeq.odeint(f, U0, t, method=theirs)
    found = solve(f, U0, (0.0, 2.0), 40, ours)
    torch.testing.assert_close(found.u, wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.t, t, rtol=0, atol=1e-14)


def test_rk4_is_not_torchdiffeq_s_rk4():
    wanted = torchdiffeq.odeint(f, U0, torch.linspace(0, 2, 41, dtype=torch.float64), method="rk4")
    assert (solve(f, U0, (0.0, 2.0), 40, "rk4").u - wanted).abs().max() > 1e-9


def test_any_tableau_makes_a_scheme():
    """Kutta's third-order method, and Ralston's as floats."""
    kutta = Tableau(((), (Fraction(1, 2),), (-1, 2)), (Fraction(1, 6), Fraction(2, 3), Fraction(1, 6)))
    assert order(RungeKutta(kutta)) == 3
    ralston = Tableau(((), (0.5,), (0.0, 0.75)), (2 / 9, 1 / 3, 4 / 9))
    assert order(RungeKutta(ralston)) == 3
    assert kutta.c == (0, Fraction(1, 2), 1)
    square = Tableau(np.array([[0, 0], [1, 0]]), [0.5, 0.5])  # as textbooks print it
    assert order(RungeKutta(square)) == 2
    free = sympy.Symbol("a", positive=True)
    assert order(RungeKutta(Tableau(((), (free,)), (1 - 1 / (2 * free), 1 / (2 * free))))) == 2  # all of order 2


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (((0, 1), (1,)), (0.5, 0.5), "not explicit: row 1 of a has 1"),
        (((), (0, Fraction(1, 2))), (0.5, 0.5), "not explicit: row 2 of a has 1/2"),
        (((), (1,)), (0.5, 0.4), "not consistent: b sums to 0.9"),
        (((),), (0.5, 0.5), "1 rows in a and 2 weights in b"),
        ((), (), "0 rows in a and 0 weights"),
        (((), ()), (0.5, 0.5), "row 2 of a has 0 entries"),
        (((), (float("nan"),)), (0.5, 0.5), "nan"),
        (((), (np.float32("nan"),)), (0.5, 0.5), "nan"),
        (((), (1,)), (float("inf"), 0.5), "inf"),
    ],
)
def test_a_bad_tableau_names_the_value(a, b, message):
    with pytest.raises(UserError) as error:
        Tableau(a, b)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_tableau_is_printed_as_in_books():
    assert str(get_scheme("heun").tableau).splitlines() == [
        "0 |",
        "1 |   1",
        "--+---------",
        "  | 1/2  1/2",
    ]
    assert repr(get_scheme("heun")) == "heun(a = 1, b = 1/2 1/2)"
    assert repr(get_scheme("euler")) == "euler(b = 1)"
    assert repr(get_scheme("rk4")) == "rk4(a = 1/2; 0 1/2; 0 0 1, b = 1/6 1/3 1/3 1/6)"
