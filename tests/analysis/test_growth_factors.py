"""The amplification polynomial, against runs and textbook forms."""

import numpy as np
import pytest
import sympy

from stepnet import get_scheme, list_schemes, solve
from stepnet.analysis import analyse
from stepnet.analysis.symbols import k, z, zeta


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("euler", zeta - 1 - z),
        ("rk4", zeta - sum(z**j / sympy.factorial(j) for j in range(5))),
        ("lm", zeta**2 - (1 - k + z) * zeta - k),
        ("leapfrog", zeta**2 - (2 + z) * zeta + 1),
        ("ab2", zeta**2 - zeta - z * (3 * zeta - 1) / 2),
        ("backward_euler", (1 - z) * zeta - 1),
        ("coupled", zeta**2 - (2 + z**2) * zeta + 1),
        ("neumann2", zeta - (1 + z + z**2)),
    ],
)
def test_textbook_polynomials(name, wanted):
    assert sympy.expand(analyse(name).amplification.as_expr() - wanted) == 0


def test_neumann_and_picard_are_one_polynomial():
    for m in (2, 3, 4):
        assert analyse(f"neumann{m}").amplification == analyse(f"picard{m}").amplification


def test_revnet_is_not_forward_euler():
    """Forward Euler of `X' = zY, Y' = zX` is `(zeta - 1)^2 - z^2`; RevNet's polynomial is another, of determinant 1."""
    assert sympy.expand(analyse("coupled").amplification.as_expr() - ((zeta - 1) ** 2 - z**2)) != 0
    assert sympy.simplify(analyse("coupled").companion.det()) == 1


@pytest.mark.parametrize("name", [name for name in list_schemes() if not get_scheme(name).partitioned])
def test_the_companion_matrix_makes_the_run(name):
    """Three steps of `u' = lambda u` by `solve` are the last three powers of the matrix, read out of the streams."""
    scheme, value = get_scheme(name, **NUMBERS.get(name, {})), -0.37
    matrix = np.array(analyse(scheme).companion.subs(z, value).tolist(), dtype=float)
    steps = scheme.steps
    f = (lambda u: value * u / 2,) * 2 if scheme.splits else lambda u: value * u
    run = solve(f, np.array([1.0]), (0.0, float(steps + 2)), steps + 2, scheme).u[:, 0]
    state = np.array(scheme.enter(1.0)) if scheme.streams else run[:steps][::-1]
    for n in range(steps, steps + 3):
        state = matrix @ state
        found = scheme.read_out(tuple(state)) if scheme.streams else state[0]
        assert found == pytest.approx(run[n], abs=1e-12)


NUMBERS = {
    "x0": {"r": 0.7, "x": 0.2},
    "momentum": {"b": 0.4},
    "nesterov": {"b": 0.4},
    "hyper": {"streams": 3, "U": (0.2, 0.5, 0.3), "V": ((1, 0.2, 0), (0.1, 0.8, 0), (0, 0.3, 0.6)), "B": (1, 0.5, 2)},
    "mhc": {"U": (0.2, 0.8), "V": ((0.7, 0.3), (0.3, 0.7)), "B": (1, 0.5)},
    "dense": {"a": (0.7, 0.2, 0.1)},
    "multistep": {"a": (0.3, -0.1), "b": (1.2, -0.3, 0.2)},
}


def test_growth_is_the_largest_root():
    values = np.array([-0.5, -1.9, -2.1, 0.3j, -1 + 1j])
    assert np.allclose(analyse("euler").growth(values), np.abs(1 + values), atol=1e-12)
    assert np.allclose(analyse("backward_euler").growth(values), 1 / np.abs(1 - values), atol=1e-12)
    assert analyse("backward_euler").growth(np.array([1.0]))[0] == np.inf
    lm = get_scheme("lm", k=-0.5)
    wanted = [max(abs(np.roots([1, -(1.5 + v), 0.5]))) for v in values]
    assert np.allclose(analyse(lm).growth(values), wanted, atol=1e-12)
