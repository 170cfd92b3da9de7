"""Schemes of several coefficients and streams, against formulas written out in the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stepnet.errors import UserError
from stepnet.schemes import Point, advance, get_scheme, solve

Array = NDArray[np.float64]
STEPS, DT = 7, 0.3
U0 = np.array([0.7, -0.4, 0.3])
MATRIX = np.array([[-0.6, 1.1, 0.2], [-0.9, -0.3, 0.5], [0.4, -0.7, -0.8]])


def f(u: Array) -> Array:
    return np.asarray(np.tanh(MATRIX @ u) + 0.1)


def march(scheme: str, **given: Any) -> list[Array]:
    """The states of a run, by the scheme's own steps."""
    method = get_scheme(scheme, **given)
    y, states = method.enter(U0), [U0]
    past: tuple[Point, ...] = ()
    for _ in range(STEPS):
        past = (Point(y, lambda u, c, i: f(u)), *past)
        past = past if method.whole_past else past[: method.steps]
        y = advance(method, past, DT, method.k)
        states.append(method.read_out(y))
    return states


def x0(r: float, x: float) -> list[Array]:
    u, states = U0, [U0]
    for _ in range(STEPS):
        mixed = r * u + x * U0
        u = mixed + DT * f(mixed)
        states.append(u)
    return states


def momentum(b: float, lookahead: float = 0.0) -> list[Array]:
    u, v, states = U0, 0 * U0, [U0]
    for _ in range(STEPS):
        v = b * v + DT * f(u + lookahead * v)
        u = u + v
        states.append(u)
    return states


def hyper(read: Array, mix: Array, write: Array) -> list[Array]:
    """`H <- A_r^T H + B^T F(A_m^T H)` of the paper on hyper-connections, with H a matrix of streams."""
    streams, states = np.tile(U0, (len(read), 1)), [U0]
    for _ in range(STEPS):
        streams = mix @ streams + np.outer(write, DT * f(read @ streams))
        states.append(streams.mean(axis=0))
    return states


def altup(predict: Array, gain: Array) -> list[Array]:
    """`y^ = P y`, `y <- y^ + g (L(y^_1) - y^_1)` with the layer `L = 1 + dt f`."""
    streams, states = np.tile(U0, (len(gain), 1)), [U0]
    for _ in range(STEPS):
        predicted = predict @ streams
        innovation = predicted[0] + DT * f(predicted[0]) - predicted[0]
        streams = predicted + np.outer(gain, innovation)
        states.append(streams.mean(axis=0))
    return states


def multistep(a: Array, b: Array) -> list[Array]:
    past, slopes, states = [U0], [f(U0)], [U0]
    for n in range(STEPS):
        if n < len(a):
            new = past[0] + DT * slopes[0]
        else:
            new = (1 - sum(a)) * past[0] + sum(w * u for w, u in zip(a, past[1:], strict=False))
            new = new + DT * sum(w * s for w, s in zip(b, slopes, strict=False))
        past, slopes = [new, *past], [f(new), *slopes]
        states.append(new)
    return states


def dense(a: Array) -> list[Array]:
    """DenseFormer with the same weights in every step; before the third step it has too few states."""
    states = [U0]
    for _ in range(STEPS):
        mixed = states[-1] if len(states) < len(a) else sum(w * u for w, u in zip(a, reversed(states), strict=False))
        states.append(mixed + DT * f(mixed))
    return states


READ, WRITE = np.array([0.6, 0.3, 0.1]), np.array([1.0, 0.7, 1.4])
MIX = np.array([[0.8, 0.3, -0.2], [0.1, 0.9, 0.0], [0.0, 0.2, 0.7]])
DOUBLY = np.array([[0.5, 0.3, 0.2], [0.3, 0.6, 0.1], [0.2, 0.1, 0.7]])


@pytest.mark.parametrize(
    ("scheme", "given", "reference"),
    [
        ("x0", {"r": 0.8, "x": 0.15}, lambda: x0(0.8, 0.15)),
        ("momentum", {"b": 0.4}, lambda: momentum(0.4)),
        ("nesterov", {"b": 0.4}, lambda: momentum(0.4, 0.4)),
        ("hyper", {"streams": 3, "U": READ, "V": MIX, "B": WRITE}, lambda: hyper(READ, MIX, WRITE)),
        ("mhc", {"streams": 3, "U": READ, "V": DOUBLY, "B": WRITE}, lambda: hyper(READ, DOUBLY, WRITE)),
        ("altup", {"streams": 3, "V": DOUBLY, "B": WRITE}, lambda: altup(DOUBLY, WRITE)),
        ("dynamic_hyper", {"streams": 3, "U": READ, "V": DOUBLY, "B": WRITE}, lambda: hyper(READ, DOUBLY, WRITE)),
        (
            "multistep",
            {"steps": 3, "a": (0.3, -0.1), "b": (1.2, -0.3, 0.2)},
            lambda: multistep(np.array([0.3, -0.1]), np.array([1.2, -0.3, 0.2])),
        ),
        ("dense", {"a": (0.7, 0.2, 0.1)}, lambda: dense(np.array([0.7, 0.2, 0.1]))),
    ],
)
def test_a_scheme_takes_the_steps_of_its_source(
    scheme: str, given: dict[str, Any], reference: Callable[[], list[Array]]
) -> None:
    np.testing.assert_allclose(march(scheme, **given), reference(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", ["x0", "momentum", "nesterov", "hyper", "mhc", "altup", "dense", "multistep"])
def test_the_identity_start_is_euler_to_the_bit(scheme: str) -> None:
    for mine, euler in zip(march(scheme), march("euler"), strict=True):
        assert np.array_equal(mine, euler)


def test_from_rest_momentum_is_lm() -> None:
    lm, u, before = get_scheme("lm", k=-0.4), U0, U0
    for state in march("momentum", b=0.4)[1:]:
        points = tuple(Point(v, lambda w, c, i: f(w)) for v in (u, before))
        u, before = advance(lm, points, DT, -0.4), u
        np.testing.assert_allclose(u, state, rtol=0, atol=1e-12)


def test_solve_reads_the_state_out_of_the_streams() -> None:
    _, u = solve(lambda u: -u, np.array([1.0]), (0.0, 1.0), 400, "momentum", b=0.5)
    assert u.shape == (401, 1) and abs(u[-1, 0] - np.exp(-2.0)) < 0.01  # (1 - b) u' = -u


@pytest.mark.parametrize(
    ("scheme", "given", "message"),
    [
        ("x0", {"r": (1, 2)}, r"r of shape \(2,\) for 'x0': expected one number"),
        ("hyper", {"V": ((1, 0),)}, r"V of shape \(1, 2\) for 'hyper': expected an array of shape \(2, 2\)"),
        ("mhc", {"streams": 1}, r"streams = 1: expected 2 or more"),
        ("mhc", {"V": ((1, 0), (0.5, 0.5))}, r"V for 'mhc': rows and columns must sum to 1, and one sums to 3/2"),
        ("mhc", {"U": (1.5, -0.5)}, r"U for 'mhc': expected no negative weights"),
        ("mhc", {"B": (3, 1)}, r"B for 'mhc': expected weights between 0 and 2; take 'hyper'"),
        ("dense", {"a": ((1, 0),)}, r"a of shape \(1, 2\) for 'dense': expected an array of shape \(1,\)"),
        ("momentum", {"b": float("nan")}, r"b = nan for 'momentum': expected finite numbers"),
        ("multistep", {"steps": 1}, r"steps = 1: expected 2 or more"),
    ],
)
def test_wrong_coefficients_are_one_line(scheme: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        get_scheme(scheme, **given)


@pytest.mark.parametrize(
    ("scheme", "given", "message"),
    [
        (
            "hyper",
            {"V": ((1, 0), (1, 0.5))},
            "V for 'hyper' is not consistent: its row 2 sums to 3/2, expected 1; the met",
        ),
        ("hyper", {"U": (1, 0.5)}, "U for 'hyper' is not consistent: it sums to 3/2, expected 1; the method"),
        ("dense", {"a": (0.5, 0.25)}, "a for 'dense' is not consistent: it sums to 3/4, expected 1; the method"),
    ],
)
def test_coefficients_that_are_not_consistent_are_told(scheme: str, given: dict[str, Any], message: str) -> None:
    """Not refused: what a network learned may be analysed."""
    with pytest.warns(UserWarning, match=message) as told:
        method = get_scheme(scheme, **given)
    assert method.equation.mass == 0 and len(told) == 1
