"""`combine` and `mix`: exact where it matters, and nothing computed that a weight of 0 drops."""

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from stepnet.schemes import Difference, combine, mix
from stepnet.schemes.arithmetic import is_number

finite = st.floats(-1e6, 1e6)


class Untouchable:
    """A state that must not be used."""

    def __mul__(self, other):
        raise AssertionError("computed a dropped term")

    __rmul__ = __add__ = __radd__ = __mul__


@pytest.mark.parametrize("zero", [0, 0.0, Fraction(0)])
def test_a_dropped_term_is_not_computed(zero):
    u = np.array([1.0, 2.0])
    assert combine((1, u), (zero, Untouchable())) is u
    assert combine((zero, Untouchable())) == 0


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=5))
def test_tensors_arrays_and_symbols_agree(terms):
    wanted = sum(Fraction(c) * Fraction(x) for c, x in terms)
    scale = 1 + sum(abs(c * x) for c, x in terms)
    for make in (lambda x: np.array([x]), lambda x: torch.tensor([x], dtype=torch.float64)):
        found = combine(*((c, make(x)) for c, x in terms))
        assert (
            abs(float(np.asarray(found).reshape(-1)[0] if not isinstance(found, int) else 0) - wanted) < 1e-12 * scale
        )


def test_symbols_stay_exact():
    x, k = sympy.symbols("x k")
    assert combine((Fraction(1, 3), x), (k, x)).equals(x * (k + sympy.Rational(1, 3)))
    assert mix(x, 3 * x, k).equals(x + 2 * k * x)


def test_pairs_go_component_by_component():
    one, two = (np.ones(2), np.zeros(3)), (np.full(2, 2.0), np.ones(3))
    first, second = combine((2, one), (Fraction(1, 2), two))
    assert np.array_equal(first, np.full(2, 3.0)) and np.array_equal(second, np.full(3, 0.5))


@given(finite, finite)
def test_mix_at_k_0_gives_u_to_the_bit(u, v):
    state = torch.tensor([u], dtype=torch.float64)
    other = torch.tensor([v], dtype=torch.float64)
    assert torch.equal(mix(state, other, torch.tensor(0.0, dtype=torch.float64)), state)
    assert mix(state, other, 0) is state


def test_a_rational_weight_keeps_the_dtype():
    u = torch.ones(2, dtype=torch.float32)
    assert combine((Fraction(1, 3), u), (Fraction(2, 3), u)).dtype == torch.float32


@given(finite, finite, finite)
def test_a_difference_is_exact(u, end, carry):
    """`carry + (B(u) - u)` is `B(u) + (carry - u)`: the bits of B(u) when the carry is u."""
    start, block = torch.tensor([u], dtype=torch.float64), torch.tensor([end], dtype=torch.float64)
    difference = Difference(block, start)
    assert combine((1, start), (1, difference)) is block
    equal = combine((1, start.clone()), (1, difference))  # the same values, another tensor
    assert torch.equal(equal, block)
    other = torch.tensor([carry], dtype=torch.float64)
    assert torch.equal(combine((1, other), (1, difference)), block + (other - start))


def test_a_weighted_difference_is_subtracted_after_all():
    start, end = np.array([1.0]), np.array([4.0])
    assert combine((1, start), (0.5, Difference(end, start))) == 2.5


def test_a_state_that_happens_to_be_zero_is_still_a_state() -> None:
    zero = np.zeros(()) * 2  # arithmetic on a 0-d array gives a numpy scalar, which is a Python float
    assert isinstance(zero, float) and not is_number(zero, 0)
    assert combine((1, zero), (1, Difference(np.float64(3), zero))) == 3


@pytest.mark.parametrize(
    "statement",
    [
        "from stepnet import solve; solve(abs, [1.0], (0, 1), 4, 'backward_euler')",
        "from stepnet import analysis; analysis.order('lm')",
    ],
)
def test_arrays_and_symbols_need_no_torch(statement: str) -> None:
    check = "; import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", statement + check], check=False).returncode == 0
