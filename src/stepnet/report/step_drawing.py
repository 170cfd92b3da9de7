"""Draw one step of a network: states as circles, blocks as boxes, sums as small circles, weights on the arrows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, PathPatch
from matplotlib.path import Path as Curve

from stepnet.report.figures import ACCENT, FILL, INK, QUIET, SMALLEST
from stepnet.report.sketches import Box, EdgeSource, WeightedSum, Wiring, weight_text

INCHES = 0.5  # of paper for one unit of the drawing
RADIUS, JOIN = 0.34, 0.13  # of a state, of a join
BOX = (0.84, 0.56)
WARM = "#fbeeda"

Place = tuple[float, float]


class Pen:
    """Draws on axes whose unit is `INCHES * scale` long; letters stay legible at any scale."""

    def __init__(self, axes: Axes, scale: float = 1.0) -> None:
        self.axes, self.scale = axes, scale

    def state(self, at: Place, text: str, quiet: bool = False) -> None:
        """Draw a state; `quiet` for one before the first."""
        colour = QUIET if quiet else INK
        face = "white" if quiet else FILL
        self.axes.add_patch(Circle(at, RADIUS, facecolor=face, edgecolor=colour, linewidth=1.1 * self.scale, zorder=3))
        self.text(at, text, colour, 9)

    def box(self, at: Place, text: str) -> None:
        """Draw a block."""
        corner = (at[0] - BOX[0] / 2, at[1] - BOX[1] / 2)
        look: Any = {"boxstyle": "round,pad=0,rounding_size=0.1", "facecolor": WARM, "edgecolor": INK}
        self.axes.add_patch(FancyBboxPatch(corner, *BOX, **look, linewidth=1.1 * self.scale, zorder=3))
        self.text(at, text, size=8.5)

    def join(self, at: Place) -> None:
        """Draw a weighted sum."""
        self.axes.add_patch(Circle(at, JOIN, facecolor="white", edgecolor=INK, linewidth=self.scale, zorder=3))
        x, y, arm = *at, 0.6 * JOIN
        cross = Curve([(x - arm, y), (x + arm, y), (x, y - arm), (x, y + arm)], [Curve.MOVETO, Curve.LINETO] * 2)
        self.axes.add_patch(PathPatch(cross, edgecolor=INK, facecolor="none", linewidth=self.scale, zorder=4))

    def arrow(self, start: Place, end: Place, dashed: bool = False, shrink: Place = (0, 0)) -> None:
        """Draw a straight arrow, shortened at both ends by `shrink`."""
        length = ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5
        unit = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
        start = (start[0] + shrink[0] * unit[0], start[1] + shrink[0] * unit[1])
        end = (end[0] - shrink[1] * unit[0], end[1] - shrink[1] * unit[1])
        self._add_arrow(Curve([start, end]), QUIET if dashed else INK, "--" if dashed else "-")

    def elbow(self, start: Place, end: Place) -> None:
        """Draw an arrow between rows: up and then right, or right and then down."""
        corner = (start[0], end[1]) if end[1] > start[1] else (end[0], start[1])
        self._add_arrow(Curve([start, corner, corner, end], [Curve.MOVETO, *[Curve.CURVE4] * 3]), INK, "-")

    def arc(self, start: Place, end: Place, height: float, colour: str = INK) -> None:
        """Draw an arc over what lies between, or under it if `height` is negative; its middle is at 3/4 of `height`."""
        lean = 0.22 * (end[0] - start[0])
        controls = [(start[0] + lean, start[1] + height), (end[0] - lean, end[1] + height)]
        self._add_arrow(Curve([start, *controls, end], [Curve.MOVETO, *[Curve.CURVE4] * 3]), colour, "-")

    def label(self, at: Place, text: str, colour: str = ACCENT) -> None:
        """Write a weight on its edge."""
        if text:
            self.text(at, text, colour, 7.5, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8 * self.scale})

    def text(self, at: Place, text: str, colour: str = INK, size: float = 9, **options: Any) -> None:
        """Write text at a position."""
        look: Any = {
            "color": colour,
            "fontsize": max(SMALLEST, size * self.scale),
            "ha": "center",
            "va": "center",
            "zorder": 4,
        }
        self.axes.text(*at, text, **{**look, **options})

    def _add_arrow(self, path: Curve, colour: str, line: str) -> None:
        look: Any = {"arrowstyle": "-|>", "mutation_scale": 8 * self.scale, "linewidth": self.scale, "zorder": 2}
        self.axes.add_patch(FancyArrowPatch(path=path, color=colour, linestyle=line, **look))


FIRST, COLUMN, LIFT = 1.2, 2.2, 0.92  # from u_n to the first box; from level to level; from row to row
LEAD, TAIL = 1.65, 0.4  # more room: for a join before the first box; for a weight after the last one


def width_inside(wiring: Wiring) -> float:
    """Return how much wider a step is than one of a single box that reads `u_n`."""
    return 0.0 if wiring.simple else COLUMN * (wiring.levels - 1) + _lead(wiring) + TAIL


def reads_past(wiring: Wiring) -> bool:
    """Whether a box reads a state before `u_n`, under the row."""
    return _lead(wiring) > 0


def _lead(wiring: Wiring) -> float:
    """Return the width of the sum that the first boxes read."""
    return LEAD if any(box.level == 1 and len(box.argument) > 1 for box in wiring.boxes) else 0.0


def headroom(wiring: Wiring) -> float:
    """Return how much higher the arc over the step must be, or its boxes if there is no arc."""
    if wiring.rows == 1:
        return 0.45 if _reads_state_later(wiring) else 0.0
    carried = any(not isinstance(source, int) for source in wiring.result)
    return (1.25 if carried else 0.75) * (wiring.rows - 1)


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
            if list(box.argument.values()) == [1]:
                (source,) = box.argument
                self._connect(source, entrance, box)
            else:
                key = tuple(box.argument.items())
                if key not in joins:
                    across = self.first + COLUMN * (box.level - 1.5)
                    joins[key] = (across, _lowest(self.wiring, box.argument, self.start[1]))
                    self._draw_sum(box, joins[key])
                self._draw_way(joins[key], JOIN, entrance)
            self.pen.box(at, box.label)
        for number in range(len(self.places)):
            if number in self.wiring.result:
                self._draw_result(number, end)

    def _draw_sum(self, reader: Box, at: Place) -> None:
        """Draw the sum that a box reads, with weights beside the edges."""
        self.pen.join(at)
        for source, weight in reader.argument.items():
            self._connect(source, (at[0] - JOIN, at[1]), reader)
            self.pen.label(self._beside(source, at, reader), weight_text(weight, self.n, None), QUIET)

    def _beside(self, source: EdgeSource, at: Place, reader: Box) -> Place:
        """Return the position of the weight of an edge to a sum."""
        if not isinstance(source, int):
            if source[1] < self.n:
                return at[0] - 0.1, at[1] - 0.62
            if reader.level == 1:
                return 0.5 * (self.start[0] + RADIUS + at[0] - JOIN), at[1] + 0.22
        elif _is_free(self.wiring, source, reader.level) and self.places[source][1] == at[1]:
            return at[0] - 0.41, at[1] + 0.2
        return at[0] - 0.24, at[1] + 0.48

    def _connect(self, source: EdgeSource, end: Place, reader: Box) -> None:
        """Draw an edge to the input of a box: straight if nothing lies between, else over it."""
        over = (end[0] + JOIN, end[1] + JOIN)  # the top of a join
        at = self.places[source] if isinstance(source, int) else self.states[source[1]]
        if isinstance(source, int):
            if not _is_free(self.wiring, source, reader.level):
                self.pen.arc((at[0], at[1] + BOX[1] / 2), over, 0.55)
            elif at[1] > end[1]:
                self.pen.elbow((at[0] + BOX[0] / 2, at[1]), over)
            else:
                self._draw_way(at, BOX[0] / 2, end)
        elif source[1] < 0 and end[1] == at[1]:  # the input, before it is projected: round u_0
            self.pen.arc((at[0], at[1] - RADIUS), (end[0] + BOX[0] / 2, end[1] - BOX[1] / 2), -0.75)
        elif 0 <= source[1] < self.n:  # under the row, like all that reaches further back
            foot = (end[0] + JOIN, end[1] - JOIN)
            self.pen.arc((at[0] + 0.12, at[1] - RADIUS + 0.02), foot, -0.95, ACCENT)
        elif reader.level == 1:
            self._draw_way(at, RADIUS, end)
        else:
            self.pen.arc((at[0] + 0.12, at[1] + RADIUS - 0.02), over, 0.62)

    def _draw_way(self, start: Place, radius: float, end: Place) -> None:
        """Return where an edge starts: at the right side, or at the top towards a higher row."""
        if end[1] > start[1]:
            self.pen.elbow((start[0] + 0.3 * radius, start[1] + 0.95 * radius), end)
        else:
            self.pen.arrow((start[0] + radius, start[1]), end)

    def _draw_result(self, number: int, end: Place) -> None:
        """Draw an edge to the new state: straight if nothing lies between, else under it."""
        box, at = self.wiring.boxes[number], self.places[number]
        text = weight_text(self.wiring.result[number], self.n, None)
        if not _is_free(self.wiring, number, self.wiring.levels + 1):
            depth = 0.55 + 0.12 * (self.wiring.levels - box.level)
            self.pen.arc((at[0] + 0.1, at[1] - BOX[1] / 2), (end[0] - 0.12, end[1] - RADIUS + 0.02), -depth)
            self.pen.label((at[0] - 0.18, at[1] - BOX[1] / 2 - 0.2), text, QUIET)
            return
        start = (at[0] + BOX[0] / 2, at[1])
        if box.row == 0:
            self.pen.arrow(start, (end[0] - RADIUS, end[1]))
            self.pen.label((0.5 * (start[0] + end[0] - RADIUS), start[1] + 0.2), text, QUIET)
        else:
            self.pen.elbow(start, (end[0] - 0.3 * RADIUS * (box.row - 1), end[1] + 0.97 * RADIUS))
            self.pen.label((at[0], at[1] + BOX[1] / 2 + 0.18), text, QUIET)


def _column(box: Box) -> float:
    """Return the middle of the levels during which a box's output is kept."""
    return COLUMN * ((box.level + box.until - 1) / 2 - 1)


def _is_free(wiring: Wiring, number: int, level: int) -> bool:
    """Whether no box lies in a box's row between it and a level."""
    start = wiring.boxes[number]
    return not any(box.row == start.row and start.level < box.level < level for box in wiring.boxes)


def _lowest(wiring: Wiring, argument: WeightedSum, base: float) -> float:
    """Return the row of a sum: that of the lowest box that reads it."""
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
