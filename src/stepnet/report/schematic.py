"""The paper's schematics (figures 1 and 2, left) of any network: states, blocks, and weights on the edges.

Above the row stands what carries `u_n` on; below it what reaches further back, with its `k_n`. A step that evaluates
its block more than once, or whose block has branches, is drawn from the inside.
"""

from __future__ import annotations

import dataclasses
import math
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Annotated

from annotated_types import MinLen
from matplotlib.axes import Axes
from torch import nn

from stepnet.arguments import checked
from stepnet.report.figures import ACCENT, QUIET, SMALLEST, Picture, shorten_middle, write_figure
from stepnet.report.sketches import NetworkSketch, SketchedStep, StageSketch, sketch, weight_text
from stepnet.report.step_drawing import (
    BOX,
    INCHES,
    JOIN,
    MOST_PAST,
    RADIUS,
    Pen,
    Place,
    depth,
    draw_inside,
    headroom,
    shows_inside,
    width_inside,
)

SPACING = 2.4  # from state to state
SHOWN = 7  # the most steps of a stage that are all drawn; of a longer stage, three at each end
LEVELS = 12  # the most boxes in a row, where steps are drawn from the inside
ROWS = 9  # the same for the stages of a network: of more, four at each end
RAIL = 0.95  # half the distance of X and Y
MIN_COLUMNS = 7.0  # so that a heading has room
EDGE = 0.6  # left of the first state and right of the last one
TITLE, HEADING, CAPTION = 13.0, 10.0, 7.5  # sizes of letters, in points, at the scale 1
LEAST_SCALE = 0.6  # in a narrow picture rather fewer steps than smaller ones


@checked
def plot_network(model: nn.Module, title: str = "", width: float | None = None) -> Picture:
    """Draw all stages of a network, ours or converted, at most `width` inches wide."""
    return picture_of(sketch(model, title or type(model).__name__), width=width)


@checked
def plot_networks(models: Annotated[Mapping[str, nn.Module], MinLen(1)], width: float | None = None) -> Picture:
    """Draw the first stage of each network under its title, as in figures 1 and 2 (left)."""
    rows = []
    for letter, (title, model) in zip(string.ascii_lowercase, models.items(), strict=False):
        stages = sketch(model, title).stages
        first = f"stage 1 of {len(stages)}" if len(stages) > 1 else ""
        rows.append(dataclasses.replace(stages[0], heading=f"({letter}) {title}", place=first))
    return picture_of(NetworkSketch("", tuple(rows)), len(rows), width)


def draw_network(network: NetworkSketch, path: Path) -> None:
    """Write the schematic to `path`; the suffix selects the format."""
    write_figure(picture_of(network), path)


def picture_of(network: NetworkSketch, most_rows: int = ROWS, width: float | None = None) -> Picture:
    """Draw the schematic in its natural size, or at most `width` wide."""
    shown = _ends(len(network.stages), most_rows)
    most = math.inf if width is None else width / (INCHES * LEAST_SCALE) - 2 * EDGE
    rows = [None if n is None else _Row.fitting(network.stages[n], most) for n in shown]
    columns = max([MIN_COLUMNS, *(row.width for row in rows if row is not None)]) + 2 * EDGE
    scale = 1.0 if width is None else min(1.0, width / (INCHES * columns))
    captions = [
        None if row is None else _Caption(row.stage, n, columns, scale) for n, row in zip(shown, rows, strict=True)
    ]
    heights = [
        0.9 if row is None or caption is None else caption.height + _above(row.stage) + _below(row)
        for row, caption in zip(rows, captions, strict=True)
    ]
    top = -_line_height(TITLE, scale) - 0.3 if network.title else -0.1
    height = sum(heights) - top
    picture = Picture(figsize=(INCHES * scale * columns, INCHES * scale * height), layout=None)
    axes = picture.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-EDGE, columns - EDGE), ylim=(-height, 0))
    axes.set_aspect("equal")
    axes.axis("off")
    pen = Pen(axes, scale)
    left = 0.3 - EDGE
    pen.text((left, -0.3), network.title, size=TITLE, ha="left", va="top", weight="bold")
    for row, caption, row_height in zip(rows, captions, heights, strict=True):
        if row is None or caption is None:
            hidden = len(network.stages) - len(rows) + 1
            pen.text((left, top - row_height / 2), f"… {hidden} more stages …", QUIET, 9, ha="left")
        else:
            caption.draw(pen, (left, top))
            row.y = top - caption.height - _above(row.stage)
            _draw_row(pen, row)
        top -= row_height
    pen.write_weights()
    return picture


def draw_stage(axes: Axes, stage: StageSketch, scale: float) -> None:
    """Draw one stage on the caller's axes, without its caption."""
    row = _Row(stage, list(range(len(stage.steps))))
    axes.set(xlim=(-EDGE, row.width + EDGE), ylim=(-_above(stage) - _below(row), 0))
    axes.set_aspect("equal")
    axes.axis("off")
    row.y = -_above(stage)
    pen = Pen(axes, scale)
    _draw_row(pen, row)
    pen.write_weights()


def stage_size(stage: StageSketch) -> tuple[float, float]:
    """Return width and height of what `draw_stage` draws, in inches at scale 1."""
    row = _Row(stage, list(range(len(stage.steps))))
    return INCHES * (row.width + 2 * EDGE), INCHES * (_above(stage) + _below(row))


class _Caption:
    """Write the name and description of a stage above its row."""

    def __init__(self, stage: StageSketch, number: int | None, columns: float, scale: float) -> None:
        letters = int(72 * INCHES * scale * (columns - 0.6) / (0.55 * max(SMALLEST, CAPTION * scale)))
        self.heading = shorten_middle(stage.heading or f"stage {(number or 0) + 1}", int(0.62 * letters))
        facts = [stage.place, stage.scheme, stage.equation, stage.length, stage.shape, *stage.notes]
        unbroken = [fact.replace(" ", "\xa0") if len(fact) < letters else fact for fact in facts if fact]
        self.text = "\n".join(wrap(", ".join(unbroken), letters)).replace("\xa0", " ")
        lines = 1 + self.text.count("\n")
        self.first = _line_height(HEADING, scale)
        self.height = 0.25 + self.first + lines * _line_height(CAPTION, scale)

    def draw(self, pen: Pen, at: Place) -> None:
        pen.text((at[0], at[1] - 0.2), self.heading, size=HEADING, ha="left", va="top", weight="bold")
        pen.text((at[0], at[1] - 0.25 - self.first), self.text, QUIET, CAPTION, ha="left", va="top")


def _line_height(size: float, scale: float) -> float:
    """Return the height of a line of text in units of the drawing."""
    return 1.3 * max(SMALLEST, size * scale) / (72 * INCHES * scale)


def _draw_row(pen: Pen, row: _Row) -> None:
    if row.gap is not None:
        for rail in (row.y + RAIL, row.y - RAIL) if row.stage.pair else (row.y,):
            pen.arrow((row.before_gap + RADIUS, rail), (row.gap - 0.45, rail), dashed=True)
            pen.text((row.gap, rail), r"$\cdots$", QUIET, TITLE)
            if row.steps[-1] == len(row.stage.steps) - 1:
                pen.arrow((row.gap + 0.45, rail), (row.gap + SPACING - RADIUS, rail), dashed=True)
        more = f"{len(row.stage.steps) - len(row.steps)} more"
        pen.text((row.gap, row.y + (0 if row.stage.pair else 0.5)), more, QUIET, CAPTION)
    _draw_pair(pen, row) if row.stage.pair else _draw_line(pen, row)


class _Row:
    """The positions of the states of a stage; None among the steps marks omitted ones."""

    def __init__(self, stage: StageSketch, steps: Sequence[int | None]) -> None:
        self.stage, self.y = stage, 0.0
        self.steps = [n for n in steps if n is not None]
        self.gap: float | None = None
        self.before_gap = x = 0.0
        self.x: dict[int, float] = {}
        for before in range(-stage.transition - stage.projected_past, 0):  # the input, and the state before it
            self.x[before], x = x, x + SPACING
        self.x[0] = x
        for place, n in enumerate(steps):
            if n is None:
                last = place == len(steps) - 1
                self.before_gap, self.gap = x, x + (0.6 if last else 1.0) * SPACING
                x = self.gap
                if not last:
                    self.x[len(stage.steps) - len(self.steps) // 2] = x = x + SPACING
            else:
                x += SPACING + (0 if stage.pair else width_inside(stage.steps[n].wiring))
                self.x[n + 1] = x
        self.width = x + RADIUS

    @classmethod
    def fitting(cls, stage: StageSketch, most: float) -> _Row:
        """Lay out all steps, or those at both ends, or only the first ones: as many as fit into `most`."""
        count = len(stage.steps)
        levels = max((step.wiring.levels for step in stage.steps if shows_inside(step.wiring)), default=1)
        levels = 1 if stage.pair else levels
        shown = SHOWN if levels == 1 else max(3, LEVELS // levels)
        choices = [_ends(count, fewer) for fewer in range(shown, 2, -2)]
        choices += [[*range(first), None] for first in (3, 2, 1) if first < count]
        rows = [cls(stage, steps) for steps in choices]
        return next((row for row in rows if row.width <= most), min(rows, key=lambda row: row.width))

    def at(self, n: int) -> float:
        """Return the position of a state; that of the gap if it is omitted."""
        if n in self.x:
            return self.x[n]
        assert self.gap is not None
        return self.gap

    def box(self, n: int) -> float:
        """Return the position of a step's block."""
        return self.x[n] + 0.5 * SPACING


def _draw_line(pen: Pen, row: _Row) -> None:
    stage, y = row.stage, row.y
    for n in row.steps:
        step = stage.steps[n]
        start, end = (row.x[n], y), (row.x[n + 1], y)
        if not shows_inside(step.wiring):
            _draw_block(pen, row, n)
        else:
            draw_inside(pen, step.wiring, n, {place: (row.at(place), y) for place in _places(step, n)}, end)
        faint = _is_faint(row, n)
        for lag, weight in step.slopes:
            source = row.box(n - lag) if n - lag in row.steps else row.at(n - lag)
            pen.under(source, end[0], y, weight_text(weight, n, None), (BOX[1] / 2, RADIUS), faint)
        for lag, weight in () if step.wiring.carries_argument else step.states:
            text = weight_text(weight, n, step.k)
            if lag == 0:
                pen.arc((start[0], y + RADIUS), (end[0], y + RADIUS), 0.75 + headroom(step.wiring), text)
            else:
                pen.under(row.at(n - lag), end[0], y, text, faint=faint)
    for node, x in row.x.items():
        name = {-1: "$x$", -2: "$x_{-}$"}[node] if node < 0 else f"$u_{{{node}}}$"
        pen.state((x, y), name, quiet=node < 0)
    if stage.transition:
        pen.arrow((row.x[-1] + RADIUS, y), (row.x[0] - RADIUS, y), dashed=True)
        pen.text((0.5 * (row.x[-1] + row.x[0]), y + 0.22), "project", QUIET, 7.5)


def _draw_block(pen: Pen, row: _Row, n: int) -> None:
    """Draw each block of a step once, with how often it is evaluated; a transition reads the unprojected input."""
    step, y, box = row.stage.steps[n], row.y, row.box(n)
    if row.stage.transition and n == 0:
        pen.arc((row.x[-1], y - RADIUS), (box, y - BOX[1] / 2), -0.75)
    else:
        pen.arrow((row.x[n] + RADIUS, y), (box - BOX[0] / 2, y))
    pen.arrow((box + BOX[0] / 2, y), (row.x[n + 1] - RADIUS, y))
    labels = Counter(part.label for part in step.wiring.boxes)
    top = y + BOX[1] * (len(labels) - 1) / 2
    for place, label in enumerate(labels):
        pen.box((box, top - BOX[1] * place), label)
    often = " and ".join(str(times) for times in labels.values()) + " times"
    text = weight_text(step.wiring.result[0], n, None) if step.wiring.simple else often
    pen.text((box, top + BOX[1] / 2 + 0.18), text, QUIET, CAPTION)


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
                    pen.arc((source + 0.08, foot), (end - 0.08, foot), 1.05 * side, text, ACCENT)
        pen.arrow((end, row.y - BOX[1] / 2), (end, low + RADIUS))
        pen.box((end, row.y), f"$g_{{{n}}}$")
    for node, x in row.x.items():
        for rail, letter in ((high, "X"), (low, "Y")):
            pen.state((x, rail), f"${letter.lower()}$" if node < 0 else f"${letter}_{{{node}}}$", quiet=node < 0)
            if node == -1:
                pen.arrow((x + RADIUS, rail), (row.x[0] - RADIUS, rail), dashed=True)
                at = (x + 0.5 * SPACING, rail + (0.22 if rail == high else -0.22))
                pen.text(at, "project", QUIET, 7.5)


def _is_faint(row: _Row, n: int) -> bool:
    """Whether a step has many edges to the past, and they come from omitted steps or repeat those of an earlier one."""
    steps = row.stage.steps
    reads = (*steps[n].states, *steps[n].slopes)
    shown = row.gap is None or row.x[n] < row.gap
    return len(reads) >= MOST_PAST and not (
        shown and all(reads != (*steps[m].states, *steps[m].slopes) for m in row.steps if m < n)
    )


def _places(step: SketchedStep, n: int) -> set[int]:
    """Return the states that the blocks of a step read."""
    sums = [box.argument for box in step.wiring.boxes]
    return {n} | {source[1] for argument in sums for source in argument if not isinstance(source, int)}


def _ends(count: int, shown: int) -> list[int | None]:
    """Return all numbers below `count`, or those at both ends with None between them."""
    if count <= shown:
        return list(range(count))
    ends = (shown - 1) // 2
    return [*range(ends), None, *range(count - ends, count)]


def _above(stage: StageSketch) -> float:
    if stage.pair:
        return RAIL + RADIUS + (1.1 if any(lag for step in stage.steps for lag, _ in step.states) else 0.5)
    return 1.45 + 0.75 * max(headroom(step.wiring) for step in stage.steps)


def _below(row: _Row) -> float:
    """Return the height down to the lowest arc, with a margin."""
    stage = row.stage
    if stage.pair:
        return _above(stage)
    lowest = 1.2 if stage.transition or any(step.wiring.levels > 1 for step in stage.steps) else RADIUS
    for n in row.steps:
        reads = [n - lag for lag, _ in (*stage.steps[n].states, *stage.steps[n].slopes) if lag > 0]
        reads += [place for place in _places(stage.steps[n], n) if 0 <= place < n]
        lowest = max([lowest, *(RADIUS + 0.75 * depth(row.x[n + 1] - row.at(place)) for place in reads)])
    return lowest + 0.3
