"""`stepnet.solve`: any array, any right-hand side, and one line for each mistake."""

import math

import numpy as np
import pytest
import sympy
import torch

from stepnet import UserError, get_scheme, list_schemes, solve

SINGLE = [name for name in list_schemes() if len(get_scheme(name).functions) == 1]
U0 = np.array([[0.3, -0.7, 0.2], [1.0, 0.4, -0.5]])


def f(u):
    return u - 0.5 * u**3


@pytest.mark.parametrize("name", SINGLE)
def test_arrays_tensors_and_batches_agree(name):
    wanted = solve(f, U0, (0.0, 1.0), 8, name)
    assert wanted.u.shape == (9, 2, 3) and wanted.t.shape == (9,)
    tensor = solve(f, torch.tensor(U0), (0.0, 1.0), 8, name)
    assert np.allclose(tensor.u.numpy(), wanted.u, rtol=0, atol=1e-10)
    rows = [solve(f, row, (0.0, 1.0), 8, name).u for row in U0]  # a batch is its members
    assert np.allclose(np.stack(rows, axis=1), wanted.u, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", SINGLE)
def test_float32_stays_float32(name):
    run = solve(f, torch.tensor(U0, dtype=torch.float32), (0.0, 1.0), 8, name)
    assert run.u.dtype == run.t.dtype == torch.float32
    exact = solve(f, U0, (0.0, 1.0), 8, name).u
    assert np.allclose(run.u.numpy(), exact, rtol=0, atol=2e-5)
    array = solve(f, U0.astype(np.float32), (0.0, 1.0), 8, name).u
    assert array.dtype == np.float32 and np.allclose(array, exact, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", SINGLE)
def test_half_precision_and_single_numbers(name):
    exact = solve(f, U0, (0.0, 1.0), 8, name).u
    half = solve(f, torch.tensor(U0, dtype=torch.float16), (0.0, 1.0), 8, name).u
    assert half.dtype == torch.float16 and np.allclose(half.numpy(), exact, rtol=0, atol=0.02)
    for number in (U0[0, 0], torch.tensor(U0[0, 0])):  # a state of no dimensions
        assert np.allclose(np.asarray(solve(f, number, (0.0, 1.0), 8, name).u), exact[:, 0, 0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", SINGLE)
def test_f_may_leave_the_real_line(name):
    wanted = solve(lambda u: 1j * u, np.ones(2, dtype=complex), (0.0, 1.0), 4, name).u
    for u0 in (np.ones(2), torch.ones(2, dtype=torch.float64)):
        assert np.allclose(np.asarray(solve(lambda u: 1j * u, u0, (0.0, 1.0), 4, name).u), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", SINGLE)
def test_complex_is_a_rotation_of_pairs(name):
    """`u' = i u` on complex numbers is `(x, y)' = (-y, x)` on pairs."""
    rotate = np.array([[0.0, -1.0], [1.0, 0.0]])
    pairs = solve(lambda u: rotate @ u, np.array([1.0, 0.5]), (0.0, 1.0), 16, name).u
    for u0 in (np.array([1.0 + 0.5j]), torch.tensor([1.0 + 0.5j], dtype=torch.complex128)):
        run = solve(lambda u: 1j * u, u0, (0.0, 1.0), 16, name)
        found = np.asarray(run.u)[:, 0]
        assert np.allclose(found, pairs[:, 0] + 1j * pairs[:, 1], rtol=0, atol=1e-10)
        assert np.asarray(run.t).dtype.kind == "f"


@pytest.mark.parametrize("name", SINGLE)
def test_gradients_to_the_state_the_parameters_and_the_coefficients(name):
    generator = torch.Generator().manual_seed(1)
    u0 = torch.randn(2, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.randn(2, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    starts = COEFFICIENTS.get(name, {})
    ks = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in starts.values()]

    def end(u0, weight, *ks):
        scheme = get_scheme(name, **dict(zip(starts, ks, strict=True)))
        return solve(lambda t, u: torch.tanh(weight @ u) * (1 + t), u0, (0.0, 1.0), 3, scheme).u

    assert get_scheme(name).trainable == bool(ks)
    assert torch.autograd.gradcheck(end, (u0, weight, *ks))


COEFFICIENTS = {
    "lm": {"k": -0.4},
    "x0": {"r": 0.8, "x": 0.3},
    "momentum": {"b": 0.4},
    "nesterov": {"b": 0.4},
    "hyper": {"U": [0.7, 0.2], "V": [[0.9, 0.3], [-0.1, 0.6]], "B": [1.0, 0.4]},
    "mhc": {"B": [1.0, 0.4]},  # its U and V are checked, and move together
    "altup": {"V": [[0.9, 0.3], [-0.1, 0.6]], "B": [1.0, 0.4]},
    "dynamic_hyper": {"U": [0.7, 0.2], "V": [[0.9, 0.3], [-0.1, 0.6]], "B": [1.0, 0.4]},
    "dense": {"a": [0.8, 0.3]},
    "multistep": {"a": [0.2, -0.1], "b": [1.1, 0.2, -0.3]},
}


def test_gradients_of_a_pair():
    x, y = (torch.tensor([0.4, -0.3], dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(
        lambda x, y: solve((torch.sin, torch.cos), (x, y), (0.0, 1.0), 4, "coupled").u, (x, y)
    )


def test_time_is_what_the_scheme_asks_for():
    """`u' = 4 t^3`: rk4 integrates it exactly, and backward Euler sums the right ends."""
    run = solve(lambda t, u: np.full_like(u, 4 * t**3), np.zeros(1), (1.0, 2.0), 3, "rk4")
    assert run.u[-1][0] == pytest.approx(15, abs=1e-12)
    ends = solve(lambda t, u: np.full_like(u, t), np.zeros(1), (0.0, 1.0), 4, "backward_euler")
    assert ends.u[-1][0] == pytest.approx((0.25 + 0.5 + 0.75 + 1) / 4, abs=1e-12)


def test_backwards_in_time():
    there = solve(lambda u: -u, np.array([1.0]), (0.0, 1.0), 50, "rk4").u[-1]
    back = solve(lambda u: -u, there, (1.0, 0.0), 50, "rk4")
    assert back.u[-1][0] == pytest.approx(1, abs=1e-8) and back.t[0] == 1 and back.t[-1] == 0


def test_whole_numbers_become_floats():
    assert solve(lambda u: -u, [1, 2], (0, 1), 4).u.dtype == np.float64
    assert solve(lambda u: -u, torch.tensor([1, 2]), (0, 1), 4).u.dtype == torch.get_default_dtype()


def test_a_module_and_a_builtin_are_right_hand_sides():
    layer = torch.nn.Linear(2, 2)
    assert solve(layer, torch.ones(2), (0.0, 1.0), 4, "euler").u.shape == (5, 2)
    assert solve(np.sin, np.ones(2), (0.0, 1.0), 4, "euler").u.shape == (5, 2)


class Decay(torch.nn.Module):
    def forward(self, t, u):
        return -t * u


def test_a_compiled_module_still_takes_time():
    compiled = torch.compile(Decay(), backend="eager")
    u0 = torch.ones(2)
    assert torch.equal(solve(compiled, u0, (0.0, 1.0), 4).u, solve(Decay(), u0, (0.0, 1.0), 4).u)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scheme": "rk44"}, "unknown scheme 'rk44': did you mean 'rk4'"),
        ({"steps": 0}, "steps = 0: expected 1 or more"),
        ({"steps": -3}, "steps = -3"),
        ({"steps": 2.5}, "steps = 2.5"),
        ({"steps": True}, "steps = True"),
        ({"t_span": (0.0, math.nan)}, "nan"),
        ({"t_span": (0.0, math.inf)}, "inf"),
        ({"t_span": (1.0, 1.0)}, "two different finite numbers"),
        ({"t_span": (-1e308, 1e308)}, "a finite time apart"),
        ({"u0": np.array([1.0, math.nan])}, "u0 holds nan or inf"),
        ({"u0": "one"}, "u0 is a str: expected an array of numbers"),
        ({"u0": [[1.0], [2.0, 3.0]]}, "u0 is a list: expected an array of numbers"),
        ({"f": torch.tensor}, "f returned a Tensor for a state that is a ndarray"),
        ({"scheme": get_scheme("lm", k=-1)}, "lm(k=-1) is consistent with (0) u' = f"),
        ({"scheme": get_scheme("lm", k=torch.tensor([0.5, -1.0]))}, "which has no solution"),
        ({"t_span": 3.0}, "t_span = 3.0: expected a tuple in solve(…)"),
        ({"f": lambda u: u[:1]}, "f returned shape (1,) for a state of shape (2,)"),
        ({"f": lambda u: 1.0}, "f returned shape () for a state of shape (2,)"),
        ({"scheme": "coupled"}, "expected a pair (f, g) and a pair (X, Y)"),
        ({"f": (np.sin, np.cos)}, "expected one f and one array"),
        (
            {"f": (np.sin,) * 3, "u0": (np.ones(2),) * 3, "scheme": "coupled"},
            "expected a pair (f, g) and a pair (X, Y)",
        ),
        ({"scheme": "leapfrog", "velocity": np.ones(3)}, "velocity of shape (3,) for a state of shape (2,)"),
        ({"scheme": get_scheme("lm", k=0.5), "k": 0.1}, "lm(k=0.5) is built already and does not take k=0.1"),
        ({"scheme": get_scheme("lm", k=sympy.Symbol("k"))}, "a run needs a number for k"),
        ({"f": lambda u: u**9, "u0": np.full(2, 9.0), "steps": 10}, "rk4 blew up at step 1, t = 0.1, dt = 0.1"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_mistake_is_one_line_that_names_the_value(change, message):
    call = {"f": np.sin, "u0": np.ones(2), "t_span": (0.0, 1.0), "steps": 4, "scheme": "rk4"} | change
    with pytest.raises(UserError) as error:
        solve(**call)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_tensor_k_needs_a_tensor_state():
    with pytest.raises(UserError, match="k is a tensor and the state a ndarray"):
        solve(np.cos, np.zeros(2), (0, 1), 4, "lm", k=torch.tensor(-0.3))
