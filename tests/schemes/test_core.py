"""`march`: what it evaluates, what a gate drops, what a start owns."""

from itertools import repeat

import numpy as np
import pytest
import torch

from stepnet.schemes import Equation, LinearMultistep, Point, Scheme, advance, get_scheme, list_schemes, march
from stepnet.schemes.arithmetic import Difference


class Counter:
    """`f(u) = -u`, counting its evaluations."""

    def __init__(self):
        self.calls = []

    def __call__(self, u, c, i):
        self.calls.append((float(c), i))
        return -u


def explicit(name):
    return get_scheme(name).makes_network and len(get_scheme(name).functions) == 1


@pytest.mark.parametrize("name", [name for name in list_schemes() if explicit(name)])
def test_a_step_evaluates_f_as_often_as_it_states(name):
    scheme, f = get_scheme(name), Counter()
    past = tuple(Point(scheme.enter(np.ones(2)), f) for _ in range(scheme.steps))
    for older in past[1:]:
        _ = older.f
    f.calls.clear()
    advance(scheme, past, 0.1, scheme.k)
    assert sorted(i for _, i in f.calls) == list(range(scheme.stages))  # each evaluation has a number of its own


@pytest.mark.parametrize("name", [name for name in list_schemes() if explicit(name)])
def test_a_dropped_increment_is_not_evaluated(name):
    scheme, f = get_scheme(name), Counter()
    states = list(march(scheme, repeat(f, 4), scheme.enter(np.ones(2)), 0.1, gates=[0, 0, 0, 0]))
    assert f.calls == []
    assert all(np.array_equal(scheme.read_out(y), np.ones(2)) for y in states)  # equal starts carry over unchanged


def test_ab2_keeps_0_for_a_dropped_f():
    """Step 1 is dropped, so step 2 is `u + dt (3 f_2 - 0)/2`."""
    u0, dt, f = np.array([1.0, -2.0]), 0.25, lambda u, c, i: np.sin(u)
    first, second, third = march(get_scheme("ab2"), repeat(f, 3), u0, dt, gates=[1, 0, 1])
    assert np.allclose(first, u0 + dt * np.sin(u0), rtol=0, atol=1e-15)
    assert np.array_equal(second, first)
    assert np.allclose(third, second + dt * 1.5 * np.sin(second), rtol=0, atol=1e-15)


def test_a_gated_block_that_cannot_be_split_is_kept_like_any_other():
    def split(u, c, i):
        return -u

    def whole(u, c, i):
        return Difference(u + split(u, c, i), u)

    ends = [list(march(get_scheme("ab2"), repeat(f, 3), np.ones(2), 1, gates=[1, 0.5, 1]))[-1] for f in (split, whole)]
    np.testing.assert_allclose(*ends, rtol=1e-15)


def test_a_gate_holds_for_an_f_that_only_the_next_step_asks_for():
    """`u_{n+1} = u_n + dt f_{n-1}`."""
    scheme, f = LinearMultistep((1, -1, 0), (0, 0, 1), start=get_scheme("euler")), Counter()
    first, second, third = march(scheme, repeat(f, 3), np.ones(2), 0.1, gates=[1, 0.5, 1])
    np.testing.assert_allclose(second, first - 0.1 / 2, rtol=1e-15)
    np.testing.assert_allclose(third, second - 0.1 * first / 2, rtol=1e-15)


def test_ab2_keeps_a_gated_f():
    u0, dt, f = np.array([1.0]), 0.25, lambda u, c, i: np.sin(u)
    first, second, third = march(get_scheme("ab2"), repeat(f, 3), u0, dt, gates=[1, 0.5, 1])
    assert np.allclose(second, first + 0.5 * dt * (1.5 * np.sin(first) - 0.5 * np.sin(u0)), atol=1e-15)
    assert np.allclose(third, second + dt * (1.5 * np.sin(second) - 0.5 * 0.5 * np.sin(first)), atol=1e-15)


def test_a_start_owns_no_k_and_each_later_step_one():
    ks = [-0.3, 0.2]
    u0, f = torch.tensor([1.0, 2.0], dtype=torch.float64), lambda u, c, i: torch.cos(u)
    first, second, third = march(get_scheme("lm"), repeat(f, 3), u0, 1, ks=ks)
    assert torch.equal(first, u0 + torch.cos(u0))
    torch.testing.assert_close(second, 1.3 * first - 0.3 * u0 + torch.cos(first), rtol=0, atol=1e-14)
    torch.testing.assert_close(third, 0.8 * second + 0.2 * first + torch.cos(second), rtol=0, atol=1e-14)


def test_a_given_past_replaces_the_start():
    u0, older, f = np.array([1.0]), np.array([3.0]), lambda u, c, i: -u
    (u1,) = march(get_scheme("lm"), [f], u0, 1, ks=[-0.5], past=[Point(older)])
    assert u1 == 1.5 * u0 - 0.5 * older - u0


def test_after_acts_on_each_new_state():
    states = march(get_scheme("euler"), repeat(lambda u, c, i: -3 * u, 2), np.array([1.0]), 1, after=np.abs)
    assert [float(u[0]) for u in states] == [2.0, 4.0]


def test_f_is_evaluated_once_and_kept():
    f = Counter()
    point = Point(np.ones(1), f)
    assert point.f is point.f
    assert len(f.calls) == 1


def test_equations_read_as_they_are_written():
    assert str(Equation()) == "u' = f"
    assert str(Equation(2)) == "u'' = f"
    assert str(Equation(linear=True)) == "u' = f, f linear"
    assert str(get_scheme("lm", k=-0.5).equation) == "(0.5) u' = f"


def test_a_scheme_without_an_increment_says_so():
    with pytest.raises(TypeError, match="abstract"):
        advance(type("Empty", (Scheme,), {})(), (Point(1.0),))
