"""The paper's schematics (figures 1 and 2, left) of any network: states, blocks, and weights on the edges.

Above the row stands what carries `u_n` on; below it what reaches further back, with its `k_n`. A step that evaluates
its block more than once, or whose block has branches, is drawn from the inside.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from torch import nn

from stepnet.arguments import checked
from stepnet.report.figures import ACCENT, QUIET, Picture, write_figure
from stepnet.report.sketch import NetworkSketch, SketchedStep, StageSketch, sketch, weight_text
from stepnet.report.step_drawing import BOX, COLUMN, JOIN, RADIUS, Pen, draw_inside, headroom

SPACING = 2.4  # from state to state
SHOWN = 7  # so many steps of a stage are drawn in full; of a longer one, three at each end
LEVELS = 12  # so many boxes in a row at most, where steps are drawn from the inside
ROWS = 9  # the same for the stages of a network: of more, four at each end
RAIL = 0.95  # half the distance of X and Y
MARGIN = 3.3  # left of the first state, for the stage's caption
INCHES = 0.5  # of paper for one unit of the drawing


@checked
def plot_network(model: nn.Module, title: str = "") -> Picture:
    """All stages of a network, ours or converted."""
    return picture_of(sketch(model, title or type(model).__name__))


@checked
def plot_networks(models: Mapping[str, nn.Module]) -> Picture:
    """The first stage of each network, by its title: as in figures 1 and 2 (left)."""
    stages = [
        dataclasses.replace(sketch(model, title).stages[0], heading=f"({letter}) {title}")
        for letter, (title, model) in zip(string.ascii_lowercase, models.items(), strict=False)
    ]
    return picture_of(NetworkSketch("", tuple(stages)), most_rows=len(stages))


def draw_network(network: NetworkSketch, path: Path) -> None:
    """Write the schematic to `path`; the suffix chooses the format."""
    write_figure(picture_of(network), path)


def picture_of(network: NetworkSketch, most_rows: int = ROWS) -> Picture:
    """The schematic, as large as it needs."""
    rows = _ends(len(network.stages), most_rows)
    heights = [0.9 if n is None else _height(network.stages[n]) for n in rows]
    columns = max(_Row(stage, 0.0).width for stage in network.stages)
    top = -0.9 if network.title else -0.2
    width, height = MARGIN + columns + 0.6, sum(heights) - top
    picture = Picture(figsize=(INCHES * width, INCHES * height), layout=None)
    axes = picture.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-MARGIN, columns + 0.6), ylim=(-height, 0))
    axes.set_aspect("equal")
    axes.axis("off")
    pen = Pen(axes)
    pen.text((0.3 - MARGIN, -0.55), network.title, size=13, ha="left", weight="bold")
    for n, row_height in zip(rows, heights, strict=True):
        if n is None:
            hidden = len(network.stages) - len(rows) + 1
            pen.text((0.3 - MARGIN, top - row_height / 2), f"… {hidden} more stages …", QUIET, 9, ha="left")
        else:
            _draw_stage(pen, n + 1, network.stages[n], top)
        top -= row_height
    return picture


def draw_stage(axes: Axes, stage: StageSketch) -> None:
    """One stage alone, on axes of the caller's, without its caption."""
    axes.set(xlim=(-0.6, _Row(stage, 0.0).width + 0.6), ylim=(-_height(stage), 0))
    axes.set_aspect("equal")
    axes.axis("off")
    _draw_steps(Pen(axes), _Row(stage, -_above(stage)))


def _draw_stage(pen: Pen, number: int, stage: StageSketch, top: float) -> None:
    row = _Row(stage, top - _above(stage))
    pen.text((0.3 - MARGIN, row.y + 0.5), stage.heading or f"stage {number}", size=10, ha="left", weight="bold")
    pen.text((0.3 - MARGIN, row.y + 0.25), "\n".join(_caption(stage)), QUIET, 7.5, ha="left", va="top")
    if row.gap is not None:
        for rail in (row.y + RAIL, row.y - RAIL) if stage.pair else (row.y,):
            pen.arrow((row.gap - SPACING + RADIUS, rail), (row.gap - 0.45, rail), dashed=True)
            pen.text((row.gap, rail), r"$\cdots$", QUIET, 13)
            pen.arrow((row.gap + 0.45, rail), (row.gap + SPACING - RADIUS, rail), dashed=True)
        more = f"{len(stage.steps) - len(row.steps)} more"
        pen.text((row.gap, row.y + (0 if stage.pair else 0.5)), more, QUIET, 7.5)
    _draw_steps(pen, row)


def _draw_steps(pen: Pen, row: _Row) -> None:
    _draw_pair(pen, row) if row.stage.pair else _draw_line(pen, row)


class _Row:
    """Where the states of a stage stand."""

    def __init__(self, stage: StageSketch, y: float) -> None:
        self.stage, self.y = stage, y
        levels = 1 if stage.pair else max(step.wiring.levels for step in stage.steps)
        shown = SHOWN if levels == 1 else max(3, LEVELS // levels)
        steps = _ends(len(stage.steps), shown)
        self.steps = [n for n in steps if n is not None]
        self.gap: float | None = None
        x = 0.0
        self.x: dict[int, float] = {}
        for before in range(-stage.transition - stage.projected_past, 0):  # the input, and the state before it
            self.x[before], x = x, x + SPACING
        self.x[0] = x
        for n in steps:
            if n is None:
                self.gap, x = x + SPACING, x + 2 * SPACING
                self.x[len(stage.steps) - len(self.steps) // 2] = x
            else:
                x += SPACING + (0 if stage.pair else COLUMN * (stage.steps[n].wiring.levels - 1))
                self.x[n + 1] = x
        self.width = x + RADIUS

    def at(self, n: int) -> float:
        """The place of a state; the gap where it is left out."""
        if n in self.x:
            return self.x[n]
        assert self.gap is not None
        return self.gap

    def box(self, n: int) -> float:
        """The place of a step's block."""
        return self.x[n] + 0.5 * SPACING


def _draw_line(pen: Pen, row: _Row) -> None:
    stage, y = row.stage, row.y
    for n in row.steps:
        step = stage.steps[n]
        start, end = (row.x[n], y), (row.x[n + 1], y)
        if step.wiring.simple:
            _draw_block(pen, row, n)
        else:
            draw_inside(pen, step.wiring, n, {place: (row.at(place), y) for place in _places(step, n)}, end)
        for lag, weight in step.slopes:
            source = row.box(n - lag) if n - lag in row.steps else row.at(n - lag)
            depth = 0.85 + 0.35 * (lag - 1)
            pen.arc((source, y - BOX[1] / 2), (end[0] - 0.1, y - RADIUS), -depth, ACCENT)
            middle = (0.5 * (source + end[0]), y - BOX[1] / 2 - 0.75 * depth)
            pen.label(middle, weight_text(weight, n, None))
        for lag, weight in step.states:
            text = weight_text(weight, n, step.k)
            if lag == 0:
                height = 0.75 + headroom(step.wiring)
                pen.arc((start[0], y + RADIUS), (end[0], y + RADIUS), height)
                at = (0.5 * (start[0] + end[0]), y + RADIUS + 0.75 * height + 0.2)
                pen.text(at, text, QUIET, 7.5)
            else:
                source = row.at(n - lag)
                pen.arc((source + 0.08, y - RADIUS), (end[0] - 0.08, y - RADIUS), -1.05, ACCENT)
                pen.label((0.5 * (source + end[0]), y - RADIUS - 0.79), text)
    for node, x in row.x.items():
        name = {-1: "$x$", -2: "$x_{-}$"}[node] if node < 0 else f"$u_{{{node}}}$"
        pen.state((x, y), name, quiet=node < 0)
    if stage.transition:
        pen.arrow((row.x[-1] + RADIUS, y), (row.x[0] - RADIUS, y), dashed=True)
        pen.text((0.5 * (row.x[-1] + row.x[0]), y + 0.22), "project", QUIET, 7.5)


def _draw_block(pen: Pen, row: _Row, n: int) -> None:
    """One evaluation of `f` at `u_n`; that of a transition reads the unprojected input."""
    step, y, box = row.stage.steps[n], row.y, row.box(n)
    if row.stage.transition and n == 0:
        pen.arc((row.x[-1], y - RADIUS), (box, y - BOX[1] / 2), -0.75)
    else:
        pen.arrow((row.x[n] + RADIUS, y), (box - BOX[0] / 2, y))
    pen.arrow((box + BOX[0] / 2, y), (row.x[n + 1] - RADIUS, y))
    pen.box((box, y), step.wiring.boxes[0].label)
    pen.text((box, y + BOX[1] / 2 + 0.18), weight_text(step.wiring.result[0], n, None), QUIET, 7.5)


def _draw_pair(pen: Pen, row: _Row) -> None:
    high, low = row.y + RAIL, row.y - RAIL
    for n in row.steps:
        start, end = row.x[n], row.x[n + 1]
        for rail in (high, low):
            pen.arrow((start + RADIUS, rail), (end - RADIUS, rail))
        box = (start + 0.46 * SPACING, row.y)
        reads = (row.x[-1] if row.stage.transition and n == 0 else start, low)
        pen.arrow(reads, box, shrink=(RADIUS, 0.46))
        pen.arrow(box, (end, high), shrink=(0.46, RADIUS))
        pen.box(box, f"$f_{{{n}}}$")
        step = row.stage.steps[n]
        if step.g_reads == "new":
            pen.arrow((end, high - RADIUS), (end, row.y + BOX[1] / 2))
        elif step.g_reads == "old":  # both read the old pair
            pen.arrow((start, high), (end, row.y), shrink=(RADIUS, 0.46))
        else:
            join = (end - 0.45, row.y + 0.47)
            pen.arrow((start, high), join, shrink=(RADIUS, JOIN))
            pen.arrow((box[0] + BOX[0] / 2, row.y + 0.1), join, shrink=(0, JOIN))
            pen.arrow(join, (end - 0.2, row.y + BOX[1] / 2), shrink=(JOIN, 0))
            pen.join(join)
        for lag, weight in step.states:
            text = weight_text(weight, n, step.k)
            for rail, side in ((high, 1), (low, -1)):
                if lag == 0:
                    pen.text((0.5 * (start + end), rail + 0.18 * side), text, QUIET, 7.5)
                else:
                    source, foot = row.at(n - lag), rail + side * RADIUS
                    pen.arc((source + 0.08, foot), (end - 0.08, foot), 1.05 * side, ACCENT)
                    pen.label((0.5 * (source + end), foot + 0.79 * side), text)
        pen.arrow((end, row.y - BOX[1] / 2), (end, low + RADIUS))
        pen.box((end, row.y), f"$g_{{{n}}}$")
    for node, x in row.x.items():
        for rail, letter in ((high, "X"), (low, "Y")):
            pen.state((x, rail), f"${letter.lower()}$" if node < 0 else f"${letter}_{{{node}}}$", quiet=node < 0)
            if node == -1:
                pen.arrow((x + RADIUS, rail), (row.x[0] - RADIUS, rail), dashed=True)
                at = (x + 0.5 * SPACING, rail + (0.22 if rail == high else -0.22))
                pen.text(at, "project", QUIET, 7.5)


def _places(step: SketchedStep, n: int) -> set[int]:
    """The states that the inside of a step reads."""
    sums = [box.argument for box in step.wiring.boxes]
    return {n} | {source[1] for argument in sums for source in argument if not isinstance(source, int)}


def _ends(count: int, shown: int) -> list[int | None]:
    """All numbers below `count`, or those at both ends with None between them."""
    if count <= shown:
        return list(range(count))
    ends = (shown - 1) // 2
    return [*range(ends), None, *range(count - ends, count)]


def _above(stage: StageSketch) -> float:
    if stage.pair:
        return RAIL + RADIUS + (1.1 if any(lag for step in stage.steps for lag, _ in step.states) else 0.5)
    return 1.45 + 0.75 * max(headroom(step.wiring) for step in stage.steps)


def _height(stage: StageSketch) -> float:
    """Down to the lowest arc or the last line of the caption, and some air."""
    deep = any(lag for step in stage.steps for lag, _ in (*step.states, *step.slopes)) or stage.transition
    inside = any(step.wiring.levels > 1 for step in stage.steps)
    below = _above(stage) if stage.pair else 1.75 if deep else 1.45 if inside else 0.95
    return _above(stage) + max(below, 0.27 * len(_caption(stage)) + 0.1)


def _caption(stage: StageSketch) -> Sequence[str]:
    return [stage.scheme, *stage.equation.split(", "), stage.length, *filter(None, [stage.shape]), *stage.notes]
