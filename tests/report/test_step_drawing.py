"""A step, drawn: every evaluation, join and weight of its wiring, and where each stroke begins and ends."""

from fractions import Fraction

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from stepnet.report.figures import ACCENT, Picture
from stepnet.report.sketches import Anatomy, wiring
from stepnet.report.step_drawing import JOIN, RADIUS, Pen, draw_inside, headroom, width_inside
from stepnet.schemes import Euler, Scheme, combine, get_scheme
from stepnet.schemes.march_plan import plan


def drawn(scheme: str, block: Anatomy):
    axes = Picture().subplots()
    found = wiring(plan(get_scheme(scheme), 1).steps[0], 0, block=block)
    pen = Pen(axes)
    draw_inside(pen, found, 0, {0: (0.0, 0.0)}, (9.0, 0.0))
    pen.write_weights()
    kinds = {kind: sum(isinstance(p, kind) for p in axes.patches) for kind in (FancyBboxPatch, Circle, FancyArrowPatch)}
    return kinds[FancyBboxPatch], kinds[Circle], kinds[FancyArrowPatch], [text.get_text() for text in axes.texts]


def test_rk4() -> None:
    boxes, joins, arrows, texts = drawn("rk4", Anatomy())
    assert (boxes, joins) == (4, 3)
    assert arrows == 1 + 3 * 2 + 3 + 4  # into f_0; into the joins; out of them; into the new state
    assert sorted(texts.count(w) for w in ("$1/6$", "$1/3$", "$1/2$")) == [2, 2, 2]


def test_a_join_that_two_boxes_read_is_drawn_once() -> None:
    boxes, joins, arrows, texts = drawn("full_fractal3", Anatomy(whole=True, own_weights=True))
    assert (boxes, joins) == (7, 1)
    assert arrows == 3 + 1 + 2 + 2 + 1 + 3
    assert texts.count("$1/3$") == 3  # the three columns, averaged


def test_the_arc_over_a_step_goes_over_its_rows() -> None:
    shake = wiring(plan(get_scheme("euler"), 1).steps[0], 0, block=Anatomy(branch_weights=("a", "1 - a")))
    euler, rk4 = (wiring(plan(get_scheme(name), 1).steps[0], 0) for name in ("euler", "rk4"))
    assert headroom(shake) > headroom(rk4) > headroom(euler) == 0


def path(draw, *args, **options) -> np.ndarray:
    axes = Picture().subplots()
    draw(Pen(axes), *args, **options)
    return axes.patches[0]._path_original.vertices


def test_an_arrow_is_shortened_along_itself() -> None:
    assert path(Pen.arrow, (0, 0), (3, 4), shrink=(1, 2)) == pytest.approx(np.array([[0.6, 0.8], [1.8, 2.4]]))


def test_the_middle_of_an_arc_reaches_three_quarters_of_its_height() -> None:
    a, b, c, d = path(Pen.arc, (0, 0), (2, 0), 1.0)
    assert (a + 3 * b + 3 * c + d) / 8 == pytest.approx([1, 0.75])


def test_an_elbow_rises_first_and_falls_last() -> None:
    assert path(Pen.elbow, (0, 0), (2, 1))[1] == pytest.approx([0, 1])
    assert path(Pen.elbow, (0, 1), (2, 0))[1] == pytest.approx([2, 1])


def test_a_weight_of_one_is_not_written() -> None:
    axes = Picture().subplots()
    pen = Pen(axes)
    pen.arrow((0, 0), (1, 0), "")
    pen.arrow((0, 1), (1, 1), "$k$")
    pen.write_weights()
    assert [text.get_text() for text in axes.texts] == ["$k$"]


def test_a_weight_keeps_clear_of_nodes_and_of_other_edges() -> None:
    """A node stands in the middle of an arc, and other edges cross it beside the node: its weight moves along it."""
    axes = Picture(figsize=(4, 2)).subplots()
    pen = Pen(axes)
    pen.arc((0, 0), (8, 0), 4, "$a$")
    pen.state((4, 3), "$u$")
    crossing = [x for n in range(3) for x in (3.2 + 0.15 * n, 4.8 - 0.15 * n)]
    for at in crossing:
        pen.arrow((at, 0), (at, 4))
    pen.write_weights()
    x, y = next(text.get_position() for text in axes.texts if text.get_text() == "$a$")
    assert abs(x - 4) > RADIUS and min(abs(x - at) for at in crossing) > 0.1
    edge = np.array([(0, 0), (1.76, 4), (6.24, 4), (8, 0)])
    t = np.linspace(0, 1, 2001)[:, None]
    curve = (1 - t) ** 3 * edge[0] + 3 * t * (1 - t) ** 2 * edge[1] + 3 * t**2 * (1 - t) * edge[2] + t**3 * edge[3]
    assert np.abs(curve - (x, y)).max(1).min() < 0.01  # it stands on its edge


class TwoStates(Scheme):
    """`u_{n+1} = u_n + dt f((u_n + u_{n-1})/2)`: its block reads a sum of two states."""

    steps = 2

    def carry(self, past, dt, k):
        return past[0].u

    def increment(self, past, dt, k):
        middle = combine((Fraction(1, 2), past[0].u), (Fraction(1, 2), past[1].u))
        return combine((dt, past[0].rhs(middle, 0, 0)))

    def starter(self):
        return Euler()


def test_an_older_state_is_read_from_below_and_its_join_has_room() -> None:
    found = wiring(plan(TwoStates(), 2).steps[1], 1)
    axes = Picture().subplots()
    states = {0: (0.0, 0.0), 1: (2.4, 0.0)}
    draw_inside(Pen(axes), found, 1, states, (2.4 + 2.4 + width_inside(found), 0.0))
    join = next(patch for patch in axes.patches if isinstance(patch, Circle))
    assert join.center[0] - JOIN > 2.4 + RADIUS  # clear of u_1
    (below,) = [p._path_original.vertices for p in axes.patches if isinstance(p, FancyArrowPatch)
                and p.get_edgecolor() == to_rgba(ACCENT)]  # fmt: skip
    assert below[0][0] == pytest.approx(0.08) and below[1][1] < 0 and below[2][1] < 0
