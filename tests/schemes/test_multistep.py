"""Linear multistep methods: their special cases, their starts, and what they refuse."""

import math
from fractions import Fraction
from itertools import pairwise, repeat

import numpy as np
import pytest
import sympy
import torch

from stepnet import UserError, get_scheme, solve
from stepnet.analysis import analyse, best_lm, convergence, descend, order, stability_interval, zero_stable
from stepnet.schemes import LM, LinearMultistep, Point, advance, march

U0, OLDER = torch.tensor([0.7, -0.4], dtype=torch.float64), torch.tensor([0.1, 0.9], dtype=torch.float64)


def f(u, c=0, i=0):
    return torch.sin(2 * u.flip(0)) - u**2


def run(scheme, dt=1, steps=6):
    """A march from two given points: equal starts for two schemes."""
    return torch.stack(list(march(scheme, repeat(f, steps), U0, dt, past=[Point(OLDER, f)])))


def test_lm_at_k_0_is_euler_to_the_bit():
    found = solve(f, U0, (0.0, 1.0), 20, "lm", k=0.0).u
    assert torch.equal(found, solve(f, U0, (0.0, 1.0), 20, "euler").u)
    tensor = solve(f, U0, (0.0, 1.0), 20, "lm", k=torch.tensor(0.0, dtype=torch.float64)).u
    assert torch.equal(tensor, found)


def test_lm_at_k_minus_1_is_leapfrog_at_dt_1():
    torch.testing.assert_close(run(get_scheme("lm", k=-1), steps=4), run(get_scheme("leapfrog"), steps=4))


def test_lm_at_k_1_is_midpoint2_at_half_the_step():
    """`u_{n-1} + dt f` against `u_{n-1} + 2 dt f`: lm at k = 1 solves 2 u' = f."""
    torch.testing.assert_close(run(get_scheme("lm", k=1)), run(get_scheme("midpoint2"), dt=0.5), rtol=0, atol=1e-14)
    assert (run(get_scheme("lm", k=1)) - run(get_scheme("midpoint2"), dt=1)).abs().max() > 0.1


def test_lm_at_minus_beta_is_the_heavy_ball():
    beta, alpha, hessian = 0.6, 0.1, torch.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    x, before = U0, OLDER
    wanted = []
    for _ in range(10):
        x, before = x - alpha * (hessian @ x) + beta * (x - before), x
        wanted.append(x)
    scheme = get_scheme("lm", k=-beta)
    found = list(march(scheme, repeat(lambda u, c, i: -hessian @ u, 10), U0, alpha, past=[Point(OLDER)]))
    torch.testing.assert_close(torch.stack(found), torch.stack(wanted), rtol=0, atol=1e-14)


def test_without_a_k_lm_takes_the_mean_of_its_initial_law():
    """U[-0.1, 0] in the paper."""
    assert get_scheme("lm").k == Fraction(-1, 20) and get_scheme("lm").initial_k == (-0.1, 0.0)


def test_the_released_law_of_k_per_channel_is_outside_the_stable_interval():
    """`MResNetC` weighs u_n by `1 - k ~ U[-0.1, 0]`: with f = 0 two unequal states grow apart like `(-k)^n`."""
    ks = np.linspace(1.001, 1.1, 5)
    assert not any(get_scheme("lm").zero_stable_at(k) for k in ks)
    still = list(march(get_scheme("lm", k=1.1), repeat(lambda u, c, i: 0 * u, 60), U0, past=[Point(OLDER)]))
    steps = torch.stack([b - a for a, b in pairwise(still)])
    torch.testing.assert_close(steps[1:] / steps[:-1], torch.full_like(steps[1:], -1.1))


@pytest.mark.parametrize("scheme", ["lm", "lm+heun", "lm+fractal3"])
def test_solve_starts_as_a_network_does(scheme):
    """The first step is one of the base, from rest (`u_{-1} = u_0`), and not one of length dt/(1 + k)."""
    first = solve(f, U0, (0.0, 0.1), 1, scheme, k=-0.9).u[1]
    base = solve(f, U0, (0.0, 0.1), 1, scheme.removeprefix("lm").removeprefix("+") or "euler").u[1]
    torch.testing.assert_close(first, base, rtol=0, atol=1e-15)
    from_rest = march(get_scheme(scheme, k=-0.9), [lambda u, c, i: f(u)], U0, 0.1, past=[Point(U0)])
    torch.testing.assert_close(first, next(from_rest), rtol=0, atol=1e-15)


def test_lm_from_rest_stays_bounded_on_a_badly_scaled_bowl():
    """Polyak's heavy ball at its best, written out; a first step of dt/(1 + k) would reach 13 times the start."""
    rates, x = torch.tensor([1.0, 100.0], dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    best = best_lm(1, 100)
    before, largest = x, x.norm()
    for _ in range(60):
        x, before = x - best.dt * rates * x - best.k * (x - before), x
        largest = max(largest, x.norm())
    found = descend(get_scheme("lm", k=best.k), [1, 100], best.dt, 60)
    assert found.max() == pytest.approx(float(largest), rel=1e-12) and 2.6 < found.max() / found[0] < 2.7


@pytest.mark.parametrize("k", [-0.7, -0.5, 0.3])
def test_lm_solves_1_plus_k_times_u_prime(k):
    """Order 1 against `(1 + k) u' = f`, with and without floats; order 0 against `u' = f`, to which it never tends."""
    assert convergence("lm", k=k, steps=(400, 800, 1600)).slope == pytest.approx(1, abs=0.15)
    ends = [solve(lambda u: -u, np.array([1.0]), (0, 1), n, "lm", k=k).u[-1][0] for n in (500, 4000)]
    assert abs(ends[1] - math.exp(-1 / (1 + k))) < 0.3 * abs(ends[0] - math.exp(-1 / (1 + k)))
    assert abs(ends[1] - math.exp(-1)) > 0.05


def test_leapfrog_takes_the_initial_velocity():
    velocity = np.array([0.5, -1.0, 0.2])
    assert convergence("leapfrog", velocity=velocity).slope == pytest.approx(2, abs=0.15)
    run = solve(lambda u: -u, np.array([1.0]), (0, 2), 400, "leapfrog", velocity=np.array([3.0]))
    assert np.allclose(run.u[:, 0], np.cos(run.t) + 3 * np.sin(run.t), atol=1e-4)
    single = solve(lambda u: -u, torch.ones(1, requires_grad=True), (0, 2), 400, "leapfrog", velocity=[3.0])
    assert single.u.dtype == torch.float32 and single.u[-1].item() == pytest.approx(run.u[-1][0], abs=1e-3)
    listed = solve(lambda u: -u, np.array([1.0]), (0, 2), 400, "leapfrog", velocity=[3.0])
    assert np.array_equal(listed.u, run.u)


def test_a_method_of_ones_own():
    """AB2 written as coefficients is `ab2`; BDF-like alpha with a start of order 4 keeps its order 2."""
    mine = LinearMultistep((1, -1, 0), (0, Fraction(3, 2), Fraction(-1, 2)))
    assert order(mine) == 2 and analyse(mine).amplification == analyse("ab2").amplification
    past = (Point(U0, f), Point(OLDER, f))
    assert torch.equal(advance(mine, past, 0.1), advance(get_scheme("ab2"), past, 0.1))
    extrapolated = LinearMultistep((Fraction(3, 2), -2, Fraction(1, 2)), (0, 2, -1))
    extrapolated.name = "extrapolated BDF2"
    assert order(extrapolated) == 2 and zero_stable(extrapolated)
    assert convergence(extrapolated).slope == pytest.approx(2, abs=0.15)


def test_coefficients_may_be_symbols_or_tensors():
    a = sympy.Symbol("a")
    assert order(LinearMultistep((1, a - 1, -a), (0, 1 + a, 0))) == 1
    k = torch.tensor(-0.3, dtype=torch.float64, requires_grad=True)
    solve(f, U0, (0.0, 1.0), 5, LinearMultistep((1, k - 1, -k), (0, 1, 0))).u.sum().backward()
    assert k.grad is not None and k.grad.isfinite()


@pytest.mark.parametrize("value", [-0.3, 0.1, 1 / 3])
def test_rounded_coefficients_are_analysed_as_consistent(value):
    """In float32 `1 + (k - 1) - k` is not 0, nor is the mass `1 + k`; what runs is consistent, and is analysed so."""
    k = torch.tensor(value)
    rounded = LinearMultistep((1, k - 1, -k), (0, 1, 0))
    assert order(rounded) == 1 and zero_stable(rounded) is True
    assert float(stability_interval(rounded)) == pytest.approx(2 - 2 * value, abs=1e-6)


def test_an_array_holds_a_k_for_each_component():
    ks = np.array([-0.5, 0.1])
    found = solve(np.cos, np.ones(2), (0.0, 1.0), 5, "lm", k=ks).u
    for j, k in enumerate(ks):
        assert np.allclose(found[:, j], solve(np.cos, np.ones(1), (0.0, 1.0), 5, "lm", k=k).u[:, 0], rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_k_may_be_a_tensor_of_any_float_type(dtype):
    for value in (-0.3, 0.1, 0.7, -1 / 3):
        found = solve(f, U0.to(dtype), (0.0, 1.0), 5, "lm", k=torch.tensor(value, dtype=dtype)).u
        torch.testing.assert_close(found.double(), solve(f, U0, (0.0, 1.0), 5, "lm", k=value).u, rtol=0, atol=1e-5)


def test_the_beta_sum_of_appendix_a_excludes_ab2():
    """As printed, `sum_{j=0}^k alpha_j u_{n-j} = dt sum_{j=0}^{k-1} beta_j f_{n-j}`, explicit when beta_0 = 0.

    For k = 2 that leaves one evaluation, f_{n-1}; AB2 is a two-step method with two.
    """
    alpha, beta = get_scheme("ab2").coefficients(None)
    steps = len(alpha) - 1
    printed = beta[:steps]  # j = 0 … k - 1
    assert steps == 2 and sum(b != 0 for b in printed) == 1
    assert sum(b != 0 for b in beta) == 2  # so j must run to k


def test_the_damping_sign_of_section_3_2():
    """`X' = Y, Y' = f - g Y`, discretised as in the paper, is `(2 - g) X_n - (1 - g) X_{n-1} + f`: lm at k = g - 1.

    The printed `(2 + g), (1 + g)` is lm at k = -1 - g, which is not zero-stable for any damping g > 0.
    """
    g, new, now, before, force = sympy.symbols("g X_new X_now X_before f")
    velocity = now - before  # Y_n = (X_n - X_{n-1})/dt at dt = 1
    (solved,) = sympy.solve((new - now) - velocity - (force - g * velocity), new)
    lm = get_scheme("lm", k=g - 1)
    step = advance(lm, (Point(now, lambda u, c, i: force), Point(before)), 1, lm.k)
    assert sympy.expand(solved - step) == 0
    assert sympy.expand(solved - ((2 - g) * now - (1 - g) * before + force)) == 0
    for damping in (0.1, 0.5, 1.0):
        assert zero_stable(get_scheme("lm", k=damping - 1))
        assert not zero_stable(get_scheme("lm", k=-1 - damping))


@pytest.mark.parametrize(
    ("alpha", "beta", "message"),
    [
        ((1, -1), (1, 0), "not explicit, beta_0 must be 0"),
        ((1, -0.5), (0, 1), "alpha must sum to 0"),
        ((1, -1), (0, 0), "beta sums to 0"),
        ((0, 1, -1), (0, 1, 0), "alpha_0 must not be 0"),
        ((1, -1), (0, 1, 0), "two lists of one length"),
        ((1,), (0,), "two lists of one length"),
        ((1, -1), (0, math.nan), "expected finite numbers"),
        ((1, -1), (0, np.float32(math.inf)), "expected finite numbers"),
    ],
)
def test_bad_coefficients_are_named(alpha, beta, message):
    with pytest.raises(UserError, match=message) as error:
        LinearMultistep(alpha, beta)
    assert str(alpha) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("k", [math.nan, math.inf, -math.inf, np.float32("nan"), torch.tensor(math.nan), sympy.oo])
def test_lm_refuses_a_k_that_is_not_finite(k):
    with pytest.raises(UserError, match=r"lm with k = .*(nan|inf|oo).*: k must be a finite number"):
        get_scheme("lm", k=k)


def test_repr_shows_the_coefficients():
    assert repr(get_scheme("ab2")) == "ab2(alpha = 1 -1 0, beta = 0 3/2 -1/2)"
    assert repr(get_scheme("lm", k=-0.5)) == "lm(k = -0.5, alpha = 1 -1.5 0.5, beta = 0 1 0)"


@pytest.mark.parametrize("base", ["heun", "neumann2", "picard3", "fractal3", "backward_euler"])
def test_lm_over_a_one_step_method_is_its_carry_and_the_methods_increment(base: str) -> None:
    scheme, one = get_scheme(f"lm+{base}", k=Fraction(-1, 3)), get_scheme(base)
    assert scheme.name == f"lm+{one.name}" and scheme.stages == one.stages and scheme.trainable
    past = tuple(Point(np.array([u]), lambda v, c, i: np.sin(v) - v) for u in (0.7, 0.4))
    step = advance(one, past[:1], 0.3)
    wanted = 4 / 3 * past[0].u - 1 / 3 * past[1].u + (step - past[0].u)
    np.testing.assert_allclose(advance(scheme, past, 0.3, scheme.k), wanted, rtol=1e-13)
    at_zero = get_scheme("lm", base=base, k=0)
    assert np.array_equal(advance(at_zero, past, 0.3, 0), step)


def test_lm_over_a_pair_carries_both_parts() -> None:
    scheme = get_scheme("lm+coupled", k=0.5)
    f, g = (lambda v, c, i: 2 * v), (lambda v, c, i: -v)
    past = (Point((3.0, 5.0), (f, g)), Point((1.0, 2.0), (f, g)))
    x, y = advance(scheme, past, 0.1, 0.5)
    dx = 0.1 * 2 * 5.0
    assert (x, y) == pytest.approx((2.0 + dx, 3.5 - 0.1 * (3.0 + dx)))
    assert str(scheme.equation) == "(1.5) X' = f(Y), (1.5) Y' = g(X)"


def test_lm_over_euler_is_lm() -> None:
    assert type(get_scheme("lm+euler")) is LM and get_scheme("lm+euler").name == "lm"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lm+ab2", "lm over 'ab2': it reads 2 past states"),
        ("lm+lm", "lm over 'lm': it reads 2 past states"),
        ("lm+full_fractal3", "its step has no term u_n"),
        ("lm+huen", "unknown scheme 'huen'.*'heun'"),
        ("heun+lm", "'heun' cannot be combined with a base; did you mean 'lm\\+heun'"),
    ],
)
def test_what_lm_cannot_go_over_is_told_in_one_line(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        get_scheme(name)


def test_a_base_given_twice_is_refused() -> None:
    with pytest.raises(UserError, match=r"'lm\+neumann2' has the base 'neumann2', and base = 'heun': give one of them"):
        get_scheme("lm+neumann2", base="heun")


@pytest.mark.parametrize("k", [1j, "a", float("nan"), True, [0.5]])
def test_a_k_that_is_no_real_number_is_told_in_one_line(k: object) -> None:
    with pytest.raises(UserError, match=r"lm with k = .*finite number"):
        get_scheme("lm", k=k)
