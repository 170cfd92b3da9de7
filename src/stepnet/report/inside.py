"""A step drawn from the inside: the evaluations of its block, what each reads, and the weights with which they meet."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from stepnet.report.figures import QUIET
from stepnet.report.sketch import weight_text
from stepnet.report.strokes import (
    BOX,
    JOIN,
    RADIUS,
    Place,
    draw_arc,
    draw_arrow,
    draw_box,
    draw_elbow,
    draw_join,
    draw_label,
)
from stepnet.report.wiring import Box, Source, Sum, Wiring

FIRST, COLUMN, LIFT = 1.2, 1.85, 0.92  # from u_n to the first box; from level to level; from row to row


def headroom(wiring: Wiring) -> float:
    """How much higher than usual the arc over the step must go, or its boxes stand where there is none."""
    if wiring.rows == 1:
        return 0.45 if _reads_state_later(wiring) else 0.0
    carried = any(not isinstance(source, int) for source in wiring.result)
    return (1.25 if carried else 0.75) * (wiring.rows - 1)


def draw_inside(axes: Axes, wiring: Wiring, n: int, states: Mapping[int, Place], end: Place) -> None:
    """Between `u_n` and `u_{n+1}`, which stands at `end`; `states` are the places of what the step reads."""
    start = states[n]
    places = [(start[0] + _column(box), start[1] + LIFT * box.row) for box in wiring.boxes]
    joins: dict[tuple[tuple[Source, object], ...], Place] = {}
    for box, at in zip(wiring.boxes, places, strict=True):
        entrance = (at[0] - BOX[0] / 2, at[1])
        if list(box.argument.values()) == [1]:
            (source,) = box.argument
            _connect(axes, wiring, places, states, source, entrance, box)
        else:
            key = tuple(box.argument.items())
            if key not in joins:
                joins[key] = (start[0] + FIRST + COLUMN * (box.level - 1.5), _lowest(wiring, box.argument, start[1]))
                _draw_sum(axes, wiring, places, states, box, joins[key], n)
            _draw_way(axes, joins[key], JOIN, entrance)
        draw_box(axes, at, box.label)
    for number, at in enumerate(places):
        if number in wiring.result:
            _draw_result(axes, wiring, number, at, end, weight_text(wiring.result[number], n, None))


def _draw_sum(
    axes: Axes, wiring: Wiring, places: list[Place], states: Mapping[int, Place], reader: Box, at: Place, n: int
) -> None:
    """The join of what a box reads, with the weights beside the edges."""
    draw_join(axes, at)
    for source, weight in reader.argument.items():
        _connect(axes, wiring, places, states, source, (at[0] - JOIN, at[1]), reader)
        level = isinstance(source, int) and places[source][1] == at[1] and _is_free(wiring, source, reader.level)
        beside = (at[0] - 0.3, at[1] + 0.2) if level else (at[0] - 0.24, at[1] + 0.46)
        draw_label(axes, beside, weight_text(weight, n, None), QUIET)


def _connect(
    axes: Axes,
    wiring: Wiring,
    places: list[Place],
    states: Mapping[int, Place],
    source: Source,
    end: Place,
    reader: Box,
) -> None:
    """An edge to what a box reads: level where nothing stands between, else over it."""
    over = (end[0] + JOIN, end[1] + JOIN)  # the top of a join
    if isinstance(source, int):
        at = places[source]
        if not _is_free(wiring, source, reader.level):
            draw_arc(axes, (at[0], at[1] + BOX[1] / 2), over, 0.55)
        elif at[1] > end[1]:
            draw_elbow(axes, (at[0] + BOX[0] / 2, at[1]), over)
        else:
            _draw_way(axes, at, BOX[0] / 2, end)
    elif source[1] < 0 and end[1] == states[source[1]][1]:  # the input, before it is projected: round u_0
        at = states[source[1]]
        draw_arc(axes, (at[0], at[1] - RADIUS), (end[0] + BOX[0] / 2, end[1] - BOX[1] / 2), -0.75)
    elif reader.level == 1:
        _draw_way(axes, states[source[1]], RADIUS, end)
    else:
        at = states[source[1]]
        draw_arc(axes, (at[0] + 0.12, at[1] + RADIUS - 0.02), over, 0.62)


def _draw_way(axes: Axes, start: Place, radius: float, end: Place) -> None:
    """To the right from what is so wide, or to a higher row from its top."""
    if end[1] > start[1]:
        draw_elbow(axes, (start[0] + 0.3 * radius, start[1] + 0.95 * radius), end)
    else:
        draw_arrow(axes, (start[0] + radius, start[1]), end)


def _draw_result(axes: Axes, wiring: Wiring, number: int, at: Place, end: Place, text: str) -> None:
    """An edge to the new state: level where nothing stands between, else under it."""
    box = wiring.boxes[number]
    if _is_free(wiring, number, wiring.levels + 1):
        start = (at[0] + BOX[0] / 2, at[1])
        if box.row == 0:
            draw_arrow(axes, start, (end[0] - RADIUS, end[1]))
            draw_label(axes, (start[0] + 0.22, start[1] + 0.2), text, QUIET)
        else:
            draw_elbow(axes, start, (end[0] - 0.3 * RADIUS * (box.row - 1), end[1] + 0.97 * RADIUS))
            draw_label(axes, (at[0], at[1] + BOX[1] / 2 + 0.18), text, QUIET)
    else:
        depth = 0.55 + 0.12 * (wiring.levels - box.level)
        draw_arc(axes, (at[0] + 0.1, at[1] - BOX[1] / 2), (end[0] - 0.12, end[1] - RADIUS + 0.02), -depth)
        draw_label(axes, (at[0] - 0.18, at[1] - BOX[1] / 2 - 0.2), text, QUIET)


def _column(box: Box) -> float:
    """In the middle of the levels during which a box is waited for."""
    return FIRST + COLUMN * ((box.level + box.until - 1) / 2 - 1)


def _is_free(wiring: Wiring, number: int, level: int) -> bool:
    """Whether no box stands in a box's row between it and a level."""
    own = wiring.boxes[number]
    return not any(box.row == own.row and own.level < box.level < level for box in wiring.boxes)


def _lowest(wiring: Wiring, argument: Sum, base: float) -> float:
    """The row of a join: that of the lowest box that reads it."""
    return base + LIFT * min(box.row for box in wiring.boxes if box.argument == argument)


def _reads_state_later(wiring: Wiring) -> bool:
    """Whether an edge goes over boxes, under the arc of the whole step."""
    return any(
        box.level > 1 and any(not isinstance(source, int) for source in box.argument) for box in wiring.boxes
    ) or any(
        not _is_free(wiring, source, box.level)
        for box in wiring.boxes
        for source in box.argument
        if isinstance(source, int)
    )
