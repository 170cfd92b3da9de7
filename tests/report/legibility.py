"""What is wrong with a drawn figure, as matplotlib measures it: texts that collide, leave the page or are tiny."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from unittest.mock import patch

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Patch
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

DPI = 144
SLACK = 1.0  # pixel, of half a point: two boxes may touch
SMALLEST = 6.0  # points


def flaws(figure: Figure) -> list[str]:
    """Draw the figure and list what a reader would stumble over."""
    figure.set_dpi(DPI)
    drawn: list[Text] = []
    draw = Text.draw

    def record(text: Text, renderer: object, *args: object, **kwargs: object) -> None:
        if text.get_visible() and text.get_text().strip():
            drawn.append(text)
        draw(text, renderer, *args, **kwargs)

    canvas = FigureCanvasAgg(figure)
    with patch.object(Text, "draw", record):
        canvas.draw()
    boxes = {id(text): _ink(text, canvas) for text in drawn}
    texts = list({id(text): text for text in drawn}.values())
    return [
        *(f"{_name(t)} has {t.get_fontsize():.1f} pt" for t in texts if t.get_fontsize() < SMALLEST - 1e-6),
        *(f"{_name(t)} leaves the page" for t in texts if not _inside(boxes[id(t)], figure.bbox)),
        *(
            f"{_name(one)} overlaps {_name(other)}"
            for one, other in combinations(texts, 2)
            if _overlap(boxes[id(one)], boxes[id(other)])
        ),
        *_covered(figure, texts, boxes),
    ]


def _covered(figure: Figure, texts: list[Text], boxes: dict[int, Bbox]) -> Iterator[str]:
    """Legends over data; nodes of a schematic over each other or over a text that is not their own."""
    for legend in figure.findobj(Legend):
        frame = legend.get_window_extent()
        for axes in figure.axes:
            if any(_points_within(line, frame) for line in _data(axes)):
                yield f"a legend covers data of {axes.get_title() or axes.get_xlabel() or 'the axes'!r}"
    for axes in figure.axes:
        for text in (text for text in texts if text in axes.texts):
            if any(_points_within(line, boxes[id(text)]) for line in _data(axes)):
                yield f"{_name(text)} lies over a curve"
        yield from _crossed(axes, texts, boxes)
        nodes = [patch for patch in axes.patches if isinstance(patch, Circle | FancyBboxPatch)]
        frames = [node.get_window_extent() for node in nodes]
        for one, other in combinations(range(len(nodes)), 2):
            if _overlap(frames[one], frames[other]):
                yield f"nodes at {_centre(nodes[one])} and {_centre(nodes[other])} overlap"
        for frame in frames:
            centre = 0.5 * (frame.p0 + frame.p1)
            for text in texts:
                if text.axes is axes and _overlap(frame, boxes[id(text)]):
                    anchor = text.get_transform().transform(text.get_position())
                    if np.abs(anchor - centre).max() > SLACK:
                        yield f"{_name(text)} lies over a node"
                    elif not _inside(boxes[id(text)], frame):
                        yield f"{_name(text)} is wider than its node"


def _crossed(axes: Axes, texts: list[Text], boxes: dict[int, Bbox]) -> Iterator[str]:
    """Texts over the arrows of a schematic; a weight with a white ground may stand on one, its own."""
    arrows = [
        patch for patch in axes.patches if isinstance(patch, FancyArrowPatch) and min(patch.get_edgecolor()) < 0.7
    ]
    lines = [_dense(axes.transData.transform(line)) for arrow in arrows for line in _lines(arrow)]
    for text in (text for text in texts if text in axes.texts):
        box, shrunk = boxes[id(text)], 2 * SLACK
        low, high = box.p0 + shrunk, box.p1 - shrunk
        crossed = sum(bool(((low < line) & (line < high)).all(-1).any()) for line in lines)
        if crossed > (text.get_bbox_patch() is not None):
            yield f"{_name(text)} lies over {crossed} arrows"


def _lines(arrow: FancyArrowPatch) -> list[np.ndarray]:
    """The line of an arrow without its head, as vertices."""
    return [np.asarray(line) for line in arrow.get_path().to_polygons(closed_only=False)[:1]]


def _dense(line: np.ndarray) -> np.ndarray:
    steps = np.linspace(0, 1, 20)[:, None]
    return np.concatenate([a + steps * (b - a) for a, b in pairwise(line)])


def _data(axes: Axes) -> list[Line2D]:
    """The curves and points of some axes; not the lines that span them."""
    return [line for line in axes.lines if line.get_transform() == axes.transData and line.get_visible()]


def _points_within(line: Line2D, frame: Bbox) -> bool:
    points = line.get_transform().transform(np.column_stack(line.get_data()).astype(float))
    if len(points) > 1:  # also between the points
        points = _dense(points)
    axes = line.axes
    assert isinstance(axes, Axes)
    seen = points[[axes.bbox.contains(*point) for point in points]] if len(points) else points
    return any(frame.contains(*point) for point in seen)


def _ink(text: Text, canvas: FigureCanvasAgg) -> Bbox:
    if isinstance(text, Annotation):
        return Text.get_window_extent(text, canvas.get_renderer())
    return text.get_window_extent(canvas.get_renderer())


def _overlap(one: Bbox, other: Bbox) -> bool:
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return width > SLACK and height > SLACK


def _inside(inner: Bbox, outer: Bbox) -> bool:
    return bool((inner.p0 >= outer.p0 - SLACK).all() and (inner.p1 <= outer.p1 + SLACK).all())


def _centre(patch: Patch) -> tuple[float, ...]:
    frame = patch.get_extents().transformed(patch.axes.transData.inverted())  # type: ignore[union-attr]
    return tuple(float(round(x, 1)) for x in 0.5 * (frame.p0 + frame.p1))


def _name(text: Text) -> str:
    return repr(text.get_text().replace("\n", " / ")[:60])
