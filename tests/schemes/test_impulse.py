"""The weights with which what blocks add arrives: formulas written here, and schemes found again from them."""

from __future__ import annotations

import numpy as np
import pytest

from stepnet.schemes import get_scheme, list_schemes
from stepnet.schemes.impulse import MarchShape, fit, impulse_response, nearest_scheme, streams

NETWORKS = [name for name in list_schemes() if get_scheme(name).makes_network]
KS = [-0.3, 0.2, 0.1, -0.4, 0.5]


def test_lm_follows_its_recursion() -> None:
    """`w_{n+1} = (1 - k_n) w_n + k_n w_{n-1} + dt e_n`, from an Euler step."""
    dt, columns = 0.5, np.eye(7)
    rows = [columns[0], columns[0] + dt * columns[1]]
    for n, k in enumerate(KS, 1):
        rows.append((1 - k) * rows[n] + k * rows[n - 1] + dt * columns[n + 1])
    found = impulse_response(get_scheme("lm"), MarchShape(6), dt, [None, *KS])[..., 0]
    np.testing.assert_allclose(found, np.array(rows), atol=1e-15)


def test_rk4_shows_its_tableau() -> None:
    found = impulse_response(get_scheme("rk4"), MarchShape(1), 2.0)[..., 0]
    a = np.array([[0, 0, 0, 0], [1 / 2, 0, 0, 0], [0, 1 / 2, 0, 0], [0, 0, 1, 0], [1 / 6, 1 / 3, 1 / 3, 1 / 6]])
    np.testing.assert_allclose(found, np.concatenate([np.ones((5, 1)), 2 * a], axis=1), atol=1e-15)


def test_step_sizes_and_gates_multiply() -> None:
    found = impulse_response(get_scheme("euler"), MarchShape(3), [1, 2, 3], gates=[0.5, 0.5, 1])[-1, :, 0]
    np.testing.assert_allclose(found, [1, 0.5, 1, 3])


def test_an_activated_state_is_a_column_of_its_own() -> None:
    """`u_2 = relu((1 - k) u_1 + k u_0 + f_1)`: the row is what goes into the relu."""
    found = impulse_response(get_scheme("lm"), MarchShape(2, activated=True), 1, [None, -0.25])[..., 0]
    np.testing.assert_allclose(found, [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [-0.25, 0, 1, 1.25, 0]])


def test_a_transition_reads_another_shape_and_hands_over_its_input() -> None:
    found = impulse_response(get_scheme("lm"), MarchShape(2, "projected"), 1, [None, -0.5])[..., 0]
    np.testing.assert_allclose(found, [[0, 0, 0], [1, 1, 0], [1, 1.5, 1]])


def test_a_coefficient_for_each_channel() -> None:
    found = impulse_response(get_scheme("lm"), MarchShape(2), 1, [None, np.array([0.0, -0.5])])
    np.testing.assert_allclose(found[2, 1], [1, 1.5])


@pytest.mark.parametrize("name", NETWORKS)
def test_a_scheme_is_found_again(name: str) -> None:
    """The same one, or another with the same weights: heun is fractal2, hyper at its start Euler."""
    scheme, layout = get_scheme(name), MarchShape(6)
    ks = [None, *KS] if scheme.trainable and not scheme.learned else None
    response = impulse_response(scheme, layout, 0.22, ks)
    match = nearest_scheme(response, layout, 1e-7)
    assert match is not None
    assert match.deviation < 1e-7
    np.testing.assert_allclose(match.dt, [0.22], atol=1e-8)
    np.testing.assert_allclose(match.coefficients, [] if ks is None else KS, atol=1e-8)


@pytest.mark.parametrize(("name", "k"), [("x0", {"r": 0.9, "x": 0.2}), ("nesterov", {"b": 0.5})])
def test_a_scheme_of_several_streams_is_found_again(name: str, k: dict[str, float]) -> None:
    response = impulse_response(get_scheme(name, **k), MarchShape(5))
    match = nearest_scheme(response, MarchShape(5), 1e-7)
    assert match is not None
    assert (match.scheme, match.deviation < 1e-7) == (name, True)
    assert streams(response, 1) == 2


def test_hyper_connections_by_their_products() -> None:
    """`U V … V B`, the weight of block j at block i."""
    u, v, b = np.array([0.3, 0.6]), np.array([[0.8, 0.3], [0.1, 0.7]]), np.array([0.5, 1.2])
    found = impulse_response(get_scheme("hyper", streams=2, U=u, V=v, B=b), MarchShape(4), 2.0)[:4, 1:5, 0]
    known = [[2 * u @ np.linalg.matrix_power(v, i - j - 1) @ b if i > j else 0 for j in range(4)] for i in range(4)]
    np.testing.assert_allclose(found, known, atol=1e-15)


def test_step_sizes_of_their_own_come_last() -> None:
    """Macaron's halves: no scheme with one step size has them."""
    layout, sizes = MarchShape(3), (0.5, 1.0, 0.5)
    match = nearest_scheme(impulse_response(get_scheme("euler"), layout, sizes), layout, 1e-7)
    assert match is not None
    assert match.scheme == "euler"
    np.testing.assert_allclose(match.dt, sizes, atol=1e-8)


def test_a_small_step_size_is_no_match_for_another_scheme() -> None:
    """All weights of f are 1e-6: what differs by less is still another scheme."""
    response = impulse_response(get_scheme("ab2"), MarchShape(4), 1e-6)
    match = fit(get_scheme("euler"), response, MarchShape(4))
    assert match is not None
    assert match.deviation > 0.1


@pytest.mark.parametrize(("name", "count"), [("euler", 1), ("lm", 2), ("ab2", 2), ("leapfrog", 2), ("coupled", 2)])
def test_streams_of_the_smallest_method(name: str, count: int) -> None:
    scheme = get_scheme(name)
    response = impulse_response(scheme, MarchShape(6), 1, [None, *KS] if scheme.trainable else None)
    assert streams(response, 2 if scheme.equation.partitioned else 1) == count


def test_streams_of_a_method_that_reads_all_the_past() -> None:
    weights = np.tril(np.random.default_rng(0).normal(size=(6, 6)), -1)
    assert streams(weights[..., None], 1) > 2
