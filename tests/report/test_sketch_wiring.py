"""The inside of a step against the schemes' own formulas, evaluated in rationals."""

from fractions import Fraction as Q

import pytest
import sympy

from stepnet import create_model
from stepnet.report.sketches import Anatomy, Wiring, states_and_slopes, wiring
from stepnet.schemes import get_scheme
from stepnet.schemes.march_plan import plan

U = ("u", 0)
B = Anatomy(whole=True, own_weights=True)


def inside(scheme: str, **options) -> Wiring:
    return wiring(plan(get_scheme(scheme), 1).steps[0], 0, **options)


def test_rk4_has_its_tableau_on_the_edges() -> None:
    found = inside("rk4")
    assert [box.argument for box in found.boxes] == [{U: 1}, {U: 1, 0: Q(1, 2)}, {U: 1, 1: Q(1, 2)}, {U: 1, 2: 1}]
    assert found.result == {U: 1, 0: Q(1, 6), 1: Q(1, 3), 2: Q(1, 3), 3: Q(1, 6)}
    assert (found.levels, found.rows, found.simple) == (4, 1, False)


def test_polynets_second_evaluation_reads_the_first_alone() -> None:
    found = inside("neumann2")
    assert [box.argument for box in found.boxes] == [{U: 1}, {0: 1}]  # I + F + F^2
    assert found.result == {U: 1, 0: 1, 1: 1}


def test_the_step_size_is_in_the_weights() -> None:
    assert inside("heun", step_size=0.5).result == {U: 1, 0: Q(1, 4), 1: Q(1, 4)}


def test_a_fractal_of_whole_blocks_has_columns_and_joins_and_no_skip() -> None:
    found = inside("full_fractal3", block=B)
    columns = {row: [n for n, box in enumerate(found.boxes) if box.row == row] for row in range(found.rows)}
    assert columns == {0: [2, 3, 5, 6], 1: [1, 4], 2: [0]}  # 4, 2 and 1 layers deep
    assert found.boxes[4].argument == found.boxes[5].argument == {1: Q(1, 2), 3: Q(1, 2)}
    assert found.result == {0: Q(1, 3), 4: Q(1, 3), 6: Q(1, 3)}
    assert found.boxes[3].label == "$B_{0}^{4}$"


@pytest.mark.parametrize("scheme", ["fractal2", "fractal3", "full_fractal3", "rk4", "neumann3"])
def test_whole_blocks_make_the_same_step(scheme) -> None:
    """With B(u) = u + f(u) put back, the rewritten sums are the plan's own, here for f(u) = lambda u."""
    rate, u = sympy.Symbol("lambda"), sympy.Symbol("u")

    def value(found: Wiring, factor: sympy.Expr) -> sympy.Expr:
        boxes: list[sympy.Expr] = []

        def total(terms) -> sympy.Expr:
            return sum(w * (boxes[s] if isinstance(s, int) else u) for s, w in terms.items())

        for box in found.boxes:
            boxes.append(factor * total(box.argument))
        return sympy.expand(total(found.result))

    assert value(inside(scheme, block=B), 1 + rate) == value(inside(scheme), rate)


def test_branches_share_what_they_read_and_split_the_weight() -> None:
    found = inside("euler", block=Anatomy(branch_weights=("a", "1 - a")))
    a = sympy.Symbol("a")
    assert [box.argument for box in found.boxes] == [{U: 1}] * 2
    assert {box.row for box in found.boxes} == {0, 1}
    assert found.result == {U: 1, 0: a, 1: 1 - a}


def test_blocks_tell_what_they_are() -> None:
    def first(name: str) -> Anatomy:
        return Anatomy.of(create_model(name).stages[0].blocks[-1])

    assert first("fractalnet20") == Anatomy(whole=True, own_weights=True)
    assert first("shakeshake26_2x32d").branch_weights == ("a", "1 - a")
    assert first("two_way_resnet20").branch_weights == ("1", "1")
    assert first("mpoly2_resnet20") == Anatomy(own_weights=True)
    assert first("lm_resnet20") == Anatomy()


def test_what_reaches_back_is_told_apart() -> None:
    step = plan(get_scheme("ab2"), 3).steps[2]
    states, slopes = states_and_slopes(wiring(step, 2).result)
    assert states == [(2, 1)]
    assert slopes == [(1, Q(-1, 2))]
    assert wiring(step, 2).simple
