"""Draw one step of a network: states as circles, blocks as boxes, sums as small circles, weights on the arrows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.bezier import BezierSegment
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, PathPatch
from matplotlib.path import Path as Curve
from matplotlib.textpath import TextPath

from stepnet.report.figures import ACCENT, FILL, INK, QUIET, SMALLEST
from stepnet.report.sketches import Box, EdgeSource, Wiring, weight_text

INCHES = 0.5  # of paper for one unit of the drawing
RADIUS, JOIN = 0.34, 0.13  # of a state, of a join
BOX = (0.84, 0.56)
WARM, FAINT = "#fbeeda", "#efd9c9"
MOST_EDGES = 14  # of a step that is drawn from the inside
MOST_PAST = 3  # past states with their weights; of more, edges that repeat or cross others are drawn faint, without
WEIGHT = 7.5  # points, of a weight on an edge
ALONG = np.linspace(0.06, 0.94, 45)  # where on its edge a weight may stand
ASIDE = (1, -1, 2.5, -2.5)  # how far beside a straight one

Place = tuple[float, float]


@dataclass(frozen=True)
class Edge:
    """An arrow by its two or four control points, with the weight that is to be written on it."""

    controls: tuple[Place, ...]
    weight: str
    colour: str

    def points(self, t: np.ndarray) -> np.ndarray:
        """Return the points of the curve at the parameters `t` in [0, 1]."""
        return BezierSegment(np.array(self.controls))(t)


class Pen:
    """Draws on axes whose unit is `INCHES * scale` long; letters stay legible at any scale.

    The weights of the edges are written by `write_weights`, when everything that they must not cover is drawn.
    """

    def __init__(self, axes: Axes, scale: float = 1.0) -> None:
        self.axes, self.scale = axes, scale
        self.edges: list[Edge] = []
        self.taken: list[tuple[float, float, float, float]] = []  # centre and half size of nodes and texts

    def state(self, at: Place, text: str, quiet: bool = False) -> None:
        """Draw a state; `quiet` for one before the first."""
        colour = QUIET if quiet else INK
        face = "white" if quiet else FILL
        self.axes.add_patch(Circle(at, RADIUS, facecolor=face, edgecolor=colour, linewidth=1.1 * self.scale, zorder=3))
        self.taken.append((*at, RADIUS, RADIUS))
        self.text(at, text, colour, 9)

    def box(self, at: Place, text: str) -> None:
        """Draw a block."""
        corner = (at[0] - BOX[0] / 2, at[1] - BOX[1] / 2)
        look: Any = {"boxstyle": "round,pad=0,rounding_size=0.1", "facecolor": WARM, "edgecolor": INK}
        self.axes.add_patch(FancyBboxPatch(corner, *BOX, **look, linewidth=1.1 * self.scale, zorder=3))
        self.taken.append((*at, BOX[0] / 2, BOX[1] / 2))
        self.text(at, text, size=8.5)

    def join(self, at: Place) -> None:
        """Draw a weighted sum."""
        self.axes.add_patch(Circle(at, JOIN, facecolor="white", edgecolor=INK, linewidth=self.scale, zorder=3))
        x, y, arm = *at, 0.6 * JOIN
        cross = Curve([(x - arm, y), (x + arm, y), (x, y - arm), (x, y + arm)], [Curve.MOVETO, Curve.LINETO] * 2)
        self.axes.add_patch(PathPatch(cross, edgecolor=INK, facecolor="none", linewidth=self.scale, zorder=4))
        self.taken.append((*at, JOIN, JOIN))

    def arrow(self, start: Place, end: Place, weight: str = "", dashed: bool = False, shrink: Place = (0, 0)) -> None:
        """Draw a straight arrow, shortened at both ends by `shrink`."""
        length = ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5
        unit = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
        start = (start[0] + shrink[0] * unit[0], start[1] + shrink[0] * unit[1])
        end = (end[0] - shrink[1] * unit[0], end[1] - shrink[1] * unit[1])
        self._add(Edge((start, end), weight, QUIET), QUIET if dashed else INK, "--" if dashed else "-")

    def elbow(self, start: Place, end: Place, weight: str = "") -> None:
        """Draw an arrow between rows: up and then right, or right and then down."""
        corner = (start[0], end[1]) if end[1] > start[1] else (end[0], start[1])
        self._add(Edge((start, corner, corner, end), weight, QUIET), INK)

    def arc(self, start: Place, end: Place, height: float, weight: str = "", colour: str = INK) -> None:
        """Draw an arc over what lies between, or under it if `height` is negative; its middle is at 3/4 of `height`."""
        lean = 0.22 * (end[0] - start[0])
        controls = (start, (start[0] + lean, start[1] + height), (end[0] - lean, end[1] + height), end)
        self._add(Edge(controls, weight, QUIET if colour == INK else colour), colour)

    def under(
        self, start: float, end: float, y: float, weight: str, feet: Place = (RADIUS, RADIUS), faint: bool = False
    ) -> None:
        """Draw an arc under the row `y`, the deeper the further back it reaches, from and to `feet` below the row."""
        ends = (start + 0.08, y - feet[0]), (end - 0.08, y - feet[1])
        self.arc(*ends, -depth(end - start), "" if faint else weight, FAINT if faint else ACCENT)

    def text(self, at: Place, text: str, colour: str = INK, size: float = 9, **options: Any) -> None:
        """Write text at a position."""
        look: Any = {"color": colour, "fontsize": self._points(size), "ha": "center", "va": "center", "zorder": 4}
        self.axes.text(*at, text, **{**look, **options})
        if text and not options:
            self.taken.append((*at, *self._half_size(text, size)))

    def write_weights(self) -> None:
        """Write each weight on its edge, where it covers no node, no text and as few other edges as possible.

        On a short straight arrow it would hide the arrow: there it stands beside it, and by a curve only if it must.
        """
        if not self.edges:
            return
        curves = np.stack([edge.points(np.linspace(0, 1, 60)) for edge in self.edges])
        weighted = [number for number, edge in enumerate(self.edges) if edge.weight]
        for number in sorted(weighted, key=lambda number: np.ptp(curves[number], axis=0).sum()):
            edge = self.edges[number]
            half = np.array(self._half_size(edge.weight, WEIGHT))
            spots, straight = edge.points(ALONG), len(edge.controls) == 2
            (ax, ay), (bx, by) = edge.controls[0], edge.controls[-1]
            normal = np.array([ay - by, bx - ax]) / np.hypot(bx - ax, by - ay)
            beside = (np.abs(normal) @ half + 0.06) * normal
            spots = np.concatenate([spots + far * beside for far in (ASIDE if straight else (0, *ASIDE[:2]))])
            taken = np.array(self.taken).reshape(-1, 4)
            covered = (np.abs(spots[:, None] - taken[:, :2]) < half + taken[:, 2:]).all(-1).sum(1)
            inside = (np.abs(spots[:, None, None] - np.delete(curves, number, 0)) < half + 0.02).all(-1).any(-1).sum(1)
            away = np.tile(np.abs(ALONG - 0.5), len(spots) // len(ALONG))
            away += 0.2 * (np.arange(len(spots)) // len(ALONG))
            best = spots[np.argmin(100 * covered + 3 * inside + away)]
            back = None if straight else {"facecolor": "white", "edgecolor": "none", "pad": 0.8 * self.scale}
            self.text(tuple(best), edge.weight, edge.colour, WEIGHT, bbox=back)
            self.taken.append((*best, *half))
        self.edges.clear()

    def _add(self, edge: Edge, colour: str, line: str = "-") -> None:
        codes = [Curve.MOVETO, *[Curve.LINETO if len(edge.controls) == 2 else Curve.CURVE4] * (len(edge.controls) - 1)]
        look: Any = {"arrowstyle": "-|>", "mutation_scale": 8 * self.scale, "linewidth": self.scale, "zorder": 2}
        self.axes.add_patch(FancyArrowPatch(path=Curve(edge.controls, codes), color=colour, linestyle=line, **look))
        if colour != FAINT:
            self.edges.append(edge)

    def _points(self, size: float) -> float:
        return max(SMALLEST, size * self.scale)

    def _half_size(self, text: str, size: float) -> Place:
        """Return half the width and height of a text, with a margin, in units of the drawing."""
        frame = TextPath((0, 0), text, size=self._points(size)).get_extents()
        unit = 72 * INCHES * self.scale
        return 0.5 * frame.width / unit + 0.05, 0.5 * max(frame.height, 0.8 * self._points(size)) / unit + 0.05


def depth(span: float) -> float:
    """Return how far the control points of an arc lie under the row that it reaches back along."""
    return min(4.0, 0.2 + 0.18 * span)


FIRST, COLUMN, LIFT = 1.2, 2.2, 0.92  # from u_n to the first box; from level to level; from row to row
LEAD, TAIL = 1.65, 0.4  # more room: for a join before the first box; for a weight after the last one


def width_inside(wiring: Wiring) -> float:
    """Return how much wider a step is than one of a single box that reads `u_n`."""
    return COLUMN * (wiring.levels - 1) + _lead(wiring) + TAIL if shows_inside(wiring) else 0.0


def shows_inside(wiring: Wiring) -> bool:
    """Whether a step is drawn from the inside: not where a box says it all, nor where nobody could follow the edges."""
    edges = len(wiring.result) + sum(len(box.argument) for box in wiring.boxes)
    return not wiring.simple and (edges <= MOST_EDGES or len(wiring.boxes) == 1)


def _lead(wiring: Wiring) -> float:
    """Return the room for the sum, or the weighted state, that the first boxes read."""
    first = [box.argument for box in wiring.boxes if box.level == 1]
    weighted = 0.5 if any(list(argument.values()) != [1] for argument in first) else 0.0
    return LEAD if any(len(argument) > 1 for argument in first) else weighted


def headroom(wiring: Wiring) -> float:
    """Return how much higher the arc over the step must be, or its boxes if there is no arc."""
    if not shows_inside(wiring):  # each block once, one above the other
        return BOX[1] * (len({box.label for box in wiring.boxes}) - 1)
    inner = max((_rise(span) - 0.2 for span in _spans(wiring)), default=0.0)
    if wiring.rows == 1:
        return inner
    carried = any(not isinstance(source, int) for source in wiring.result)
    return max(inner, (1.25 if carried else 0.75) * (wiring.rows - 1))


def draw_inside(pen: Pen, wiring: Wiring, n: int, states: Mapping[int, Place], end: Place) -> None:
    """Draw a step from `u_n` to `u_{n+1}` at `end`; `states` are the positions of the states that it reads."""
    _Inside(pen, wiring, n, states).draw(end)


class _Inside:
    """The positions of the parts of a step."""

    def __init__(self, pen: Pen, wiring: Wiring, n: int, states: Mapping[int, Place]) -> None:
        self.pen, self.wiring, self.n, self.states = pen, wiring, n, states
        self.start = states[n]
        self.first = self.start[0] + FIRST + _lead(wiring)
        self.places = [(self.first + _column(box), self.start[1] + LIFT * box.row) for box in wiring.boxes]

    def draw(self, end: Place) -> None:
        """Draw the boxes, what each reads, and the edges to the new state."""
        joins: dict[tuple[tuple[EdgeSource, object], ...], Place] = {}
        for box, at in zip(self.wiring.boxes, self.places, strict=True):
            entrance = (at[0] - BOX[0] / 2, at[1])
            if len(box.argument) == 1:
                ((source, weight),) = box.argument.items()
                self._connect(source, entrance, box, self._weight(weight))
            else:
                key = tuple(box.argument.items())
                if key not in joins:
                    across = self.first + COLUMN * (box.level - 1.5)
                    lowest = min(other.row for other in self.wiring.boxes if other.argument == box.argument)
                    joins[key] = (across, self.start[1] + LIFT * lowest)
                    self._draw_sum(box, joins[key])
                self._draw_way(joins[key], JOIN, entrance)
            self.pen.box(at, box.label)
        for number in range(len(self.places)):
            if number in self.wiring.result:
                self._draw_result(number, end)
        if self.wiring.carries_argument:
            (at,) = joins.values()
            self.pen.arc((at[0], at[1] + JOIN), (end[0], end[1] + RADIUS), 0.95)

    def _weight(self, weight: object) -> str:
        return weight_text(weight, self.n, None)

    def _draw_sum(self, reader: Box, at: Place) -> None:
        """Draw the sum that a box reads."""
        self.pen.join(at)
        for source, weight in reader.argument.items():
            self._connect(source, (at[0] - JOIN, at[1]), reader, self._weight(weight))

    def _connect(self, source: EdgeSource, end: Place, reader: Box, weight: str) -> None:
        """Draw an edge to the input of a box: straight if nothing lies between, else over or under it."""
        over = (end[0] + JOIN, end[1] + JOIN)  # the top of a join
        at = self.places[source] if isinstance(source, int) else self.states[source[1]]
        if isinstance(source, int):
            if not _is_free(self.wiring, source, reader.level):
                self.pen.arc((at[0], at[1] + BOX[1] / 2), over, _rise(over[0] - at[0]), weight)
            elif at[1] > end[1]:
                self.pen.elbow((at[0] + BOX[0] / 2, at[1]), over, weight)
            else:
                self._draw_way(at, BOX[0] / 2, end, weight)
        elif source[1] < 0 and end[1] == at[1]:  # the input, before it is projected: round u_0
            self.pen.arc((at[0], at[1] - RADIUS), (end[0] + BOX[0] / 2, end[1] - BOX[1] / 2), -0.75, weight)
        elif 0 <= source[1] < self.n:
            faint = len(reader.argument) > MOST_PAST
            self.pen.under(at[0], end[0] + JOIN, at[1], weight, (RADIUS, JOIN), faint)
        elif reader.level == 1:
            self._draw_way(at, RADIUS, end, weight)
        else:
            self.pen.arc((at[0] + 0.12, at[1] + RADIUS - 0.02), over, _rise(over[0] - at[0]), weight)

    def _draw_way(self, start: Place, radius: float, end: Place, weight: str = "") -> None:
        """Draw an edge from the right side of a node, or from its top towards a higher row."""
        if end[1] > start[1]:
            self.pen.elbow((start[0] + 0.3 * radius, start[1] + 0.95 * radius), end, weight)
        else:
            self.pen.arrow((start[0] + radius, start[1]), end, weight)

    def _draw_result(self, number: int, end: Place) -> None:
        """Draw an edge to the new state: straight if nothing lies between, else under it."""
        box, at = self.wiring.boxes[number], self.places[number]
        weight = self._weight(self.wiring.result[number])
        right = (at[0] + BOX[0] / 2, at[1])
        if not _is_free(self.wiring, number, self.wiring.levels + 1):
            below = 0.55 + 0.12 * (self.wiring.levels - box.level)
            self.pen.arc((at[0] + 0.1, at[1] - BOX[1] / 2), (end[0] - 0.12, end[1] - RADIUS + 0.02), -below, weight)
        elif box.row == 0:
            self.pen.arrow(right, (end[0] - RADIUS, end[1]), weight)
        else:
            self.pen.elbow(right, (end[0] - 0.3 * RADIUS * (box.row - 1), end[1] + 0.97 * RADIUS), weight)


def _column(box: Box) -> float:
    """Return the middle of the levels during which a box's output is kept."""
    return COLUMN * ((box.level + box.until - 1) / 2 - 1)


def _is_free(wiring: Wiring, number: int, level: int) -> bool:
    """Whether no box lies in a box's row between it and a level."""
    start = wiring.boxes[number]
    return not any(box.row == start.row and start.level < box.level < level for box in wiring.boxes)


def _rise(span: float) -> float:
    """Return how far the control points of an edge over boxes lie above its ends."""
    return 0.35 + 0.12 * span


def _spans(wiring: Wiring) -> Iterator[float]:
    """Return the spans of the edges that go over boxes, under the arc of the whole step."""
    for box in wiring.boxes:
        for source in box.argument:
            end = COLUMN * (box.level - 1.5)
            if isinstance(source, int):
                if not _is_free(wiring, source, box.level):
                    yield end - _column(wiring.boxes[source])
            elif box.level > 1:
                yield FIRST + _lead(wiring) + end
