"""A step from the inside: every evaluation, join and weight that its wiring has is drawn."""

from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from stepnet.report.figures import Picture
from stepnet.report.inside import draw_inside, headroom
from stepnet.report.strokes import Pen
from stepnet.report.wiring import Anatomy, wiring
from stepnet.schemes import get_scheme
from stepnet.schemes.plan import plan


def drawn(scheme: str, block: Anatomy):
    axes = Picture().subplots()
    found = wiring(plan(get_scheme(scheme), 1).steps[0], 0, block=block)
    draw_inside(Pen(axes), found, 0, {0: (0.0, 0.0)}, (9.0, 0.0))
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
    assert texts.count("$1/4$") == 2


def test_the_arc_over_a_step_goes_over_its_rows() -> None:
    shake = wiring(plan(get_scheme("euler"), 1).steps[0], 0, block=Anatomy(branch_weights=("a", "1 - a")))
    euler, rk4 = (wiring(plan(get_scheme(name), 1).steps[0], 0) for name in ("euler", "rk4"))
    assert headroom(shake) > headroom(rk4) > headroom(euler) == 0
