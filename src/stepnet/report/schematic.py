"""The paper's schematics (figures 1 and 2) of any network: states as circles, blocks as boxes, weights on the edges.

Above the row stands what carries `u_n` on; below it what reaches further back, with its `k_n`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Curve

from stepnet.report.figures import ACCENT, FILL, INK, QUIET, write_figure
from stepnet.report.sketch import NetworkSketch, StageSketch, weight_text

SPACING, RADIUS = 2.4, 0.34  # from state to state; of a state
BOX = (0.84, 0.56)
WARM = "#fbeeda"
SHOWN = 7  # so many steps of a stage are drawn in full; of a longer one, three at each end
ROWS = 9  # the same for the stages of a network: of more, four at each end
RAIL = 0.95  # half the distance of X and Y
MARGIN = 3.3  # left of the first state, for the stage's caption

Place = tuple[float, float]


def draw_network(network: NetworkSketch, path: Path) -> None:
    """Write the schematic to `path`; the suffix chooses the format."""
    rows = _ends(len(network.stages), ROWS)
    heights = [0.9 if n is None else _height(network.stages[n]) for n in rows]
    columns = max(_Row(stage, 0.0).width for stage in network.stages)
    width, height = MARGIN + columns + 0.6, sum(heights) + 0.9
    figure = Figure(figsize=(0.5 * width, 0.5 * height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-MARGIN, columns + 0.6), ylim=(-height, 0))
    axes.set_aspect("equal")
    axes.axis("off")
    _text(axes, (0.3 - MARGIN, -0.55), network.title, size=13, ha="left", weight="bold")
    top = -0.9
    for n, row_height in zip(rows, heights, strict=True):
        if n is None:
            hidden = len(network.stages) - len(rows) + 1
            _text(axes, (0.3 - MARGIN, top - row_height / 2), f"… {hidden} more stages …", QUIET, 9, ha="left")
        else:
            _draw_stage(axes, n + 1, network.stages[n], top)
        top -= row_height
    write_figure(figure, path)


def _draw_stage(axes: Axes, number: int, stage: StageSketch, top: float) -> None:
    row = _Row(stage, top - _above(stage))
    _text(axes, (0.3 - MARGIN, row.y + 0.5), f"stage {number}", size=10, ha="left", weight="bold")
    _text(axes, (0.3 - MARGIN, row.y + 0.25), "\n".join(_caption(stage)), QUIET, 7.5, ha="left", va="top")
    if row.gap is not None:
        for rail in (row.y + RAIL, row.y - RAIL) if stage.pair else (row.y,):
            _arrow(axes, (row.gap - SPACING + RADIUS, rail), (row.gap - 0.45, rail), dashed=True)
            _text(axes, (row.gap, rail), r"$\cdots$", QUIET, 13)
            _arrow(axes, (row.gap + 0.45, rail), (row.gap + SPACING - RADIUS, rail), dashed=True)
        _text(
            axes, (row.gap, row.y + (0 if stage.pair else 0.5)), f"{len(stage.steps) - len(row.steps)} more", QUIET, 7.5
        )
    if stage.pair:
        _draw_pair(axes, row)
    else:
        _draw_line(axes, row)


class _Row:
    """Where the states of a stage stand."""

    def __init__(self, stage: StageSketch, y: float) -> None:
        self.stage, self.y = stage, y
        self.steps = [n for n in _ends(len(stage.steps), SHOWN) if n is not None]
        shown, depth = len(self.steps) // 2, len(stage.steps)
        nodes: list[int | None] = [*range(depth + 1)]
        if len(self.steps) < depth:
            nodes[shown + 1 : depth - shown] = [None]
        before = stage.transition + stage.projected_past  # the input, and the state before it
        ordered = [*range(-before, 0), *nodes]
        self.x = {node: SPACING * j for j, node in enumerate(ordered) if node is not None}
        self.gap = SPACING * ordered.index(None) if None in ordered else None
        self.width = SPACING * (len(ordered) - 1) + RADIUS

    def at(self, n: int) -> float:
        """The place of a state; the gap where it is left out."""
        if n in self.x:
            return self.x[n]
        assert self.gap is not None
        return self.gap

    def box(self, n: int) -> float:
        """The place of a step's block."""
        return self.x[n] + 0.5 * SPACING


def _draw_line(axes: Axes, row: _Row) -> None:
    stage, y = row.stage, row.y
    for n in row.steps:
        step = stage.steps[n]
        start, end = (row.x[n], y), (row.x[n + 1], y)
        box = (row.box(n), y)
        entry = stage.transition and n == 0
        if entry:  # f reads the unprojected input
            _arc(axes, (row.x[-1], y - RADIUS), (box[0], y - BOX[1] / 2), -0.75, INK)
        else:
            _arrow(axes, (start[0] + RADIUS, y), (box[0] - BOX[0] / 2, y))
        _arrow(axes, (box[0] + BOX[0] / 2, y), (end[0] - RADIUS, y))
        times = rf"$\times${step.evaluations}" if step.evaluations > 1 else ""
        _box(axes, box, f"$f_{{{n}}}${times}")
        for lag, weight in step.slopes:
            if lag == 0:
                text = weight_text(weight, n, None) if step.evaluations == 1 else ""  # several have a weight each
                _text(axes, (box[0], y + BOX[1] / 2 + 0.18), text, QUIET, 7.5)
            else:
                source = row.box(n - lag) if n - lag in row.steps else row.at(n - lag)
                _arc(axes, (source, y - BOX[1] / 2), (end[0] - 0.1, y - RADIUS), -0.85 - 0.35 * (lag - 1), ACCENT)
                _label(axes, (0.5 * (source + end[0]), y - _dip(0.85 + 0.35 * (lag - 1))), weight_text(weight, n, None))
        for lag, weight in step.states:
            text = weight_text(weight, n, step.k)
            if lag == 0:
                _arc(axes, (start[0], y + RADIUS), (end[0], y + RADIUS), 0.75, INK)
                _text(axes, (0.5 * (start[0] + end[0]), y + RADIUS + 0.56 + 0.2), text, QUIET, 7.5)
            else:
                source = row.at(n - lag)
                _arc(axes, (source + 0.08, y - RADIUS), (end[0] - 0.08, y - RADIUS), -1.05, ACCENT)
                _label(axes, (0.5 * (source + end[0]), y - RADIUS - 0.79), text)
    for node, x in row.x.items():
        name = {-1: "$x$", -2: "$x_{-}$"}[node] if node < 0 else f"$u_{{{node}}}$"
        _circle(axes, (x, y), name, quiet=node < 0)
    if stage.transition:
        _arrow(axes, (row.x[-1] + RADIUS, y), (row.x[0] - RADIUS, y), dashed=True)
        _text(axes, (0.5 * (row.x[-1] + row.x[0]), y + 0.22), "project", QUIET, 7.5)


def _draw_pair(axes: Axes, row: _Row) -> None:
    high, low = row.y + RAIL, row.y - RAIL
    for n in row.steps:
        start, end = row.x[n], row.x[n + 1]
        for rail in (high, low):
            _arrow(axes, (start + RADIUS, rail), (end - RADIUS, rail))
        box = (start + 0.46 * SPACING, row.y)
        reads = (row.x[-1] if row.stage.transition and n == 0 else start, low)
        _arrow(axes, reads, box, shrink=(RADIUS, 0.46))
        _arrow(axes, box, (end, high), shrink=(0.46, RADIUS))
        _box(axes, box, f"$f_{{{n}}}$")
        if row.stage.steps[n].couples_new:
            _arrow(axes, (end, high - RADIUS), (end, row.y + BOX[1] / 2))
        else:  # both read the old pair
            _arrow(axes, (start, high), (end, row.y), shrink=(RADIUS, 0.46))
        _arrow(axes, (end, row.y - BOX[1] / 2), (end, low + RADIUS))
        _box(axes, (end, row.y), f"$g_{{{n}}}$")
    for node, x in row.x.items():
        for rail, letter in ((high, "X"), (low, "Y")):
            _circle(axes, (x, rail), f"${letter.lower()}$" if node < 0 else f"${letter}_{{{node}}}$", quiet=node < 0)
            if node == -1:
                _arrow(axes, (x + RADIUS, rail), (row.x[0] - RADIUS, rail), dashed=True)
                _text(axes, (x + 0.5 * SPACING, rail + (0.22 if rail == high else -0.22)), "project", QUIET, 7.5)


def _ends(count: int, shown: int) -> list[int | None]:
    """All numbers below `count`, or those at both ends with None between them."""
    if count <= shown:
        return list(range(count))
    ends = (shown - 1) // 2
    return [*range(ends), None, *range(count - ends, count)]


def _above(stage: StageSketch) -> float:
    return RAIL + RADIUS + 0.5 if stage.pair else 1.45


def _height(stage: StageSketch) -> float:
    """Down to the lowest arc or the last line of the caption, and some air."""
    deep = any(lag for step in stage.steps for lag, _ in (*step.states, *step.slopes)) or stage.transition
    below = _above(stage) if stage.pair else 1.75 if deep else 0.95
    return _above(stage) + max(below, 0.27 * len(_caption(stage)) + 0.1)


def _caption(stage: StageSketch) -> list[str]:
    return [stage.scheme, *stage.equation.split(", "), stage.length, *filter(None, [stage.shape]), *stage.notes]


def _dip(height: float) -> float:
    """How far the middle of an arc lies from its ends: a cubic reaches three quarters of its control points."""
    return BOX[1] / 2 + 0.75 * height


def _circle(axes: Axes, at: Place, text: str, quiet: bool = False) -> None:
    colour = QUIET if quiet else INK
    axes.add_patch(Circle(at, RADIUS, facecolor="white" if quiet else FILL, edgecolor=colour, linewidth=1.1, zorder=3))
    _text(axes, at, text, colour, 9)


def _box(axes: Axes, at: Place, text: str) -> None:
    corner = (at[0] - BOX[0] / 2, at[1] - BOX[1] / 2)
    style = "round,pad=0,rounding_size=0.1"
    axes.add_patch(FancyBboxPatch(corner, *BOX, boxstyle=style, facecolor=WARM, edgecolor=INK, linewidth=1.1, zorder=3))
    _text(axes, at, text, size=8.5)


def _arrow(axes: Axes, start: Place, end: Place, dashed: bool = False, shrink: tuple[float, float] = (0, 0)) -> None:
    length = ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5
    unit = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
    start = (start[0] + shrink[0] * unit[0], start[1] + shrink[0] * unit[1])
    end = (end[0] - shrink[1] * unit[0], end[1] - shrink[1] * unit[1])
    _add_arrow(axes, Curve([start, end]), QUIET if dashed else INK, "--" if dashed else "-")


def _arc(axes: Axes, start: Place, end: Place, height: float, colour: str) -> None:
    lean = 0.22 * (end[0] - start[0])
    controls = [(start[0] + lean, start[1] + height), (end[0] - lean, end[1] + height)]
    _add_arrow(axes, Curve([start, *controls, end], [Curve.MOVETO, *[Curve.CURVE4] * 3]), colour, "-")


def _add_arrow(axes: Axes, path: Curve, colour: str, line: str) -> None:
    axes.add_patch(
        FancyArrowPatch(
            path=path, arrowstyle="-|>", mutation_scale=8, color=colour, linewidth=1.0, linestyle=line, zorder=2
        )
    )


def _label(axes: Axes, at: Place, text: str) -> None:
    """The weight of an edge that reaches back, on the edge."""
    if text:
        _text(axes, at, text, ACCENT, 7.5, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})


def _text(axes: Axes, at: Place, text: str, colour: str = INK, size: float = 9, **options: Any) -> None:
    axes.text(*at, text, **{"color": colour, "fontsize": size, "ha": "center", "va": "center", "zorder": 4, **options})
