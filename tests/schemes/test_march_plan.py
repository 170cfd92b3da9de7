"""The plan of a march: found by running the scheme, compared with what the textbooks say of each."""

import pytest
from sympy import Rational, simplify

from stepnet import UserError
from stepnet.analysis.symbols import dt, k
from stepnet.schemes import Equation, Scheme, combine, fixed_point, get_scheme
from stepnet.schemes.march_plan import (
    BEFORE_INPUT,
    INPUT,
    Plan,
    Quantity,
    full_step,
    plan,
    rare_use_message,
    steps_by_method,
)


def takers(planned: Plan) -> list[str]:
    return [step.method for step in planned.steps]


@pytest.mark.parametrize(
    ("scheme", "entry", "expected", "owners"),
    [
        ("euler", "identity", "scheme scheme scheme", []),
        ("euler", "projected", "transition scheme scheme", []),
        ("lm", "identity", "starter scheme scheme", [1, 2]),
        ("lm", "projected", "transition scheme scheme", [1, 2]),
        ("lm", "with past", "scheme scheme scheme", [0, 1, 2]),
        ("ab3", "identity", "starter starter scheme", []),
        ("ab3", "projected", "transition starter scheme", []),
        ("coupled", "projected", "transition scheme scheme", []),
    ],
)
def test_who_takes_a_step_and_who_owns_k(scheme, entry, expected, owners):
    planned = plan(get_scheme(scheme), 3, entry)
    assert takers(planned) == expected.split() and planned.owners == owners
    assert planned.entry == entry


@pytest.mark.parametrize(
    ("scheme", "entry", "expected", "said"),
    [
        ("euler", "projected", {"euler": 3}, ""),
        ("lm", "identity", {"euler": 1, "lm": 2}, ""),
        ("lm+heun", "projected", {"euler": 1, "lm+heun": 2}, ""),
        ("leapfrog", "identity", {"taylor2": 1, "leapfrog": 2}, ""),
        ("coupled", "projected", {"coupled": 3}, ""),
        ("ab3", "identity", {"heun": 2, "ab3": 1}, "ab3 takes 1 of 3 steps, heun 2"),
        ("ab3", "projected", {"euler": 1, "heun": 1, "ab3": 1}, "ab3 takes 1 of 3 steps, euler 1 and heun 1"),
    ],
)
def test_how_many_steps_each_method_takes(scheme, entry, expected, said):
    taken = steps_by_method(get_scheme(scheme), [plan(get_scheme(scheme), 3, entry)])
    assert taken == expected and rare_use_message(scheme, taken) == said


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("euler", [1, 1, 1]),
        ("heun", [2, 2, 2]),
        ("rk4", [4, 4, 4]),
        ("neumann3", [3, 3, 3]),
        ("fractal3", [4, 4, 4]),
        ("full_fractal3", [7, 7, 7]),
        ("ab2", [1, 1, 1]),
        ("ab3", [2, 2, 1]),  # its two starting steps are Heun's
        ("coupled", [1, 1, 1]),
    ],
)
def test_how_often_a_block_is_evaluated(scheme, expected):
    assert plan(get_scheme(scheme), 3).evaluations == expected
    assert plan(get_scheme(scheme), 3, "projected").evaluations == [1, *expected[1:]]


def test_only_multistep_methods_of_adams_read_old_slopes():
    keep = {
        name: [n in plan(get_scheme(name), 4).kept_f for n in range(4)]
        for name in ("euler", "lm", "leapfrog", "ab2", "ab3", "rk4", "coupled")
    }
    never = [False] * 4
    assert keep.pop("ab2") == keep.pop("ab3") == [True, True, True, False]
    assert set(map(tuple, keep.values())) == {tuple(never)}


def test_the_wiring_of_lm():
    start, step = plan(get_scheme("lm"), 2).steps
    assert start.new == (((Quantity("u", 0), 1), (Quantity("f", 0), dt)),)
    assert step.new == (((Quantity("u", 1), 1 - k), (Quantity("u", 0), k), (Quantity("f", 1), dt)),)
    first, second = plan(get_scheme("lm"), 2, "with past").steps
    assert dict(first.new[0])[Quantity("u", BEFORE_INPUT)] == k
    assert first.evaluations[0].argument == ((Quantity("u", INPUT), 1),)  # f reads x, which is not projected
    assert second.evaluations[0].argument == ((Quantity("u", 1), 1),)


def test_the_wiring_of_heun_and_of_the_adams_method():
    (step,) = plan(get_scheme("heun"), 1).steps
    u, f = Quantity("u", 0), [Quantity("f", 0, i) for i in range(2)]
    assert [evaluation.argument for evaluation in step.evaluations] == [((u, 1),), ((u, 1), (f[0], dt))]
    assert [evaluation.c for evaluation in step.evaluations] == [0, 1]
    assert step.new == (((u, 1), (f[0], dt / 2), (f[1], dt / 2)),)
    ab2 = plan(get_scheme("ab2"), 2).steps[1]
    assert dict(ab2.new[0])[Quantity("f", 0)] == -dt * Rational(1, 2)


class ForwardPair(Scheme):
    """Forward Euler on a pair: both right-hand sides read the old state."""

    @property
    def equation(self):
        return Equation(partitioned=True)

    def increment(self, past, dt, k):
        (f, g), (x, y) = past[0].pair, past[0].u
        return combine((dt, f(y, 0, 0))), combine((dt, g(x, 0, 0)))


def test_a_forward_pair_is_not_the_coupled_scheme():
    (forward,) = plan(ForwardPair(), 1).steps
    (coupled,) = plan(get_scheme("coupled"), 1).steps
    x, f = Quantity("X", 0), Quantity("f", 0)
    assert forward.new == coupled.new
    assert forward.evaluations[1].argument == ((x, 1),)
    assert coupled.evaluations[1].argument == ((x, 1), (f, dt)) == coupled.new[0]  # the new X
    (projected,) = plan(get_scheme("coupled"), 1, "projected").steps
    assert projected.evaluations[0].argument == ((Quantity("Y", INPUT), 1),)


def test_given_coefficients_drop_the_paths_that_they_drop():
    (step,) = plan(get_scheme("full_fractal3"), 1, ks=[[(1, 0, 0), (1, 0)]]).steps
    assert [evaluation.result.i for evaluation in step.evaluations] == [0]  # the shallowest column: one step


def test_a_full_step_needs_no_start_and_reads_the_old_slopes_itself():
    step = full_step(get_scheme("ab2"))
    assert [(e.result, e.argument) for e in step.evaluations] == [
        (Quantity("f", 1), ((Quantity("u", 1), 1),)),
        (Quantity("f", 0), ((Quantity("u", 0), 1),)),
    ]
    expected = (Quantity("u", 1), 1), (Quantity("f", 1), Rational(3, 2) * dt), (Quantity("f", 0), -dt / 2)
    assert step.new == (expected,)


def test_an_implicit_step_evaluates_f_at_the_new_state():
    (step,) = plan(get_scheme("backward_euler"), 1).steps
    assert [e.argument for e in step.evaluations] == [((Quantity("u", 1), 1),)]
    assert step.new == (((Quantity("u", 0), 1), (Quantity("f", 0), dt)),)


def test_an_implicit_step_is_solved_for_a_new_state_outside_f():
    class Damped(Scheme):
        """`u_{n+1} = u_n - dt u_{n+1} + dt f(u_{n+1})`."""

        def increment(self, past, dt, k):
            u = past[0].u
            new = fixed_point(u, lambda v: combine((1, u), (-dt, v), (dt, past[0].rhs(v, 1, 0))), 1e-12)
            return combine((1, new), (-1, u))

    (new,) = full_step(Damped()).new
    assert [(q, simplify(weight * (1 + dt))) for q, weight in new] == [(Quantity("u", 0), 1), (Quantity("f", 0), dt)]


@pytest.mark.parametrize("extra", [lambda u: 1, lambda u: u * u])
def test_a_step_that_is_no_combination_is_refused(extra):
    class Odd(Scheme):
        def increment(self, past, dt, k):
            return combine((dt, past[0].f), (dt, extra(past[0].u)))

    with pytest.raises(UserError, match="not a combination of states and evaluations of f"):
        full_step(Odd())
