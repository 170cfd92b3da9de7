"""The algebra of elementary differentials, against the classical theory of rooted trees."""

import math
from fractions import Fraction

import numpy as np
import pytest

from stepnet.analysis.trees import Series, System, defect, grade, step
from stepnet.schemes import Equation, get_scheme


class Autonomous(System):
    def evaluate(self, label, u, time):
        return super().evaluate(label, u, 0)


def size(tree):
    return 1 + sum(map(size, tree[1:]))


def density(tree):
    """gamma(t) = |t| times the densities of its subtrees."""
    return size(tree) * math.prod(map(density, tree[1:]))


def symmetry(tree):
    """sigma(t): the symmetries of equal subtrees times their own."""
    children = tree[1:]
    return math.prod(math.factorial(children.count(c)) * symmetry(c) ** children.count(c) for c in set(children))


def test_the_exact_solution_has_butcher_s_coefficients():
    """`u(dt) = u_0 + sum_t F(t) / (gamma(t) sigma(t))` over the 1, 1, 2, 4, 9, 20 rooted trees of each size."""
    solution = Autonomous(Equation(), 6).flow(1)
    counts = [sum(size(t) == n for t in solution.terms) for n in range(1, 7)]
    assert counts == [1, 1, 2, 4, 9, 20]  # OEIS A000081
    for tree, c in solution.terms.items():
        assert c == Fraction(1, density(tree) * symmetry(tree))


def test_a_runge_kutta_step_has_the_elementary_weights():
    """On `f''(f, f)` the classical method has `sum b_i c_i^2 / 2!`."""
    tableau = get_scheme("rk4").tableau
    found = step(get_scheme("rk4"), Autonomous(Equation(), 4))
    weight = sum(b * c**2 for b, c in zip(tableau.b, tableau.c, strict=True))
    assert found.terms[("f", ("f",), ("f",))] == weight / 2


def test_the_series_sums_to_the_solution_of_a_real_problem():
    """u' = u^2 + t, as numbers: each elementary differential evaluated, the sum against a tiny-step reference."""
    u0, dt = 0.3, 0.1
    derivatives = {(): u0**2, ("u",): 2 * u0, ("u", "u"): 2.0, ("tau",): 1.0}  # at t_0 = 0

    def value(tree):
        children = tree[1:]
        kind = tuple(sorted("tau" if c == ("tau",) else "u" for c in children))
        return derivatives.get(kind, 0.0) * math.prod(value(c) for c in children if c != ("tau",))

    flow = System(Equation(), 7).flow(1)
    total = u0 + sum(float(c) * value(t) * dt ** grade(t, 1) for t, c in flow.terms.items())
    reference = np.array(u0)
    for n in range(2000):  # a Taylor method of its own: u'' = 2 u u' + 1
        t, h = n * dt / 2000, dt / 2000
        slope = reference**2 + t
        second = 2 * reference * slope + 1
        third = 2 * slope**2 + 2 * reference * second
        reference = reference + h * slope + h**2 / 2 * second + h**3 / 6 * third
    assert total == pytest.approx(float(reference), abs=1e-9)


def test_an_equation_of_second_order_starts_with_its_velocity():
    """u'' = f: `u + dt v + dt^2/2 f + dt^3/6 (f'v + f_t) + …`."""
    flow = System(Equation(2), 3).flow(1)
    expected = {("v1",): 1, ("f",): Fraction(1, 2), ("f", ("v1",)): Fraction(1, 6), ("f", ("tau",)): Fraction(1, 6)}
    assert flow.terms == expected


def test_off_the_base_point_f_is_another_function():
    """`F(F(u))` evaluates f near 0, about which f near u_0 says nothing."""
    small = Series({("f",): 1}, 0)
    found = System(Equation(), 2).evaluate("f", small, 0)
    assert all(vector[0] == "f[0 u0]" for vector in found.terms)
    assert defect(get_scheme("neumann2"), Equation(), 1) == 1


def test_a_linear_f_is_only_ever_applied():
    flow = System(Equation(linear=True), 4).flow(1)
    assert sorted(flow.terms.values()) == [Fraction(1, math.factorial(n)) for n in (4, 3, 2, 1)]


def test_the_parts_of_a_pair_alternate():
    """X' = f(Y), Y' = g(X): the differentials of X are f, f'g, f'g'f."""
    first, second = System(Equation(partitioned=True), 2).flow(1)
    assert ("f", ("g",)) in first.terms and ("f", ("f",)) not in first.terms
    assert ("g", ("f",)) in second.terms
