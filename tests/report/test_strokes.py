"""The strokes of a schematic: where they begin and end."""

import numpy as np
import pytest

from stepnet.report.figures import Picture
from stepnet.report.strokes import Pen


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
    Pen(axes).label((0, 0), "")
    assert not axes.texts
