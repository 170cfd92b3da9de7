"""What a schematic is drawn with: states as circles, blocks as boxes, joins as small circles, arrows between them."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Curve

from stepnet.report.figures import ACCENT, FILL, INK, QUIET

RADIUS, JOIN = 0.34, 0.13  # of a state, of a join
BOX = (0.84, 0.56)
WARM = "#fbeeda"

Place = tuple[float, float]


def draw_state(axes: Axes, at: Place, text: str, quiet: bool = False) -> None:
    """A state, or quiet what was there before the first one."""
    colour = QUIET if quiet else INK
    axes.add_patch(Circle(at, RADIUS, facecolor="white" if quiet else FILL, edgecolor=colour, linewidth=1.1, zorder=3))
    draw_text(axes, at, text, colour, 9)


def draw_box(axes: Axes, at: Place, text: str) -> None:
    """A block."""
    corner = (at[0] - BOX[0] / 2, at[1] - BOX[1] / 2)
    style = "round,pad=0,rounding_size=0.1"
    axes.add_patch(FancyBboxPatch(corner, *BOX, boxstyle=style, facecolor=WARM, edgecolor=INK, linewidth=1.1, zorder=3))
    draw_text(axes, at, text, size=8.5)


def draw_join(axes: Axes, at: Place) -> None:
    """A weighted sum."""
    axes.add_patch(Circle(at, JOIN, facecolor="white", edgecolor=INK, linewidth=1.0, zorder=3))
    draw_text(axes, at, "+", size=7)


def draw_arrow(axes: Axes, start: Place, end: Place, dashed: bool = False, shrink: Place = (0, 0)) -> None:
    """A straight one, shortened at both ends by `shrink`."""
    length = ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5
    unit = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
    start = (start[0] + shrink[0] * unit[0], start[1] + shrink[0] * unit[1])
    end = (end[0] - shrink[1] * unit[0], end[1] - shrink[1] * unit[1])
    _add_arrow(axes, Curve([start, end]), QUIET if dashed else INK, "--" if dashed else "-")


def draw_elbow(axes: Axes, start: Place, end: Place) -> None:
    """Between rows: upwards first and then to the right, or to the right first and then downwards."""
    corner = (start[0], end[1]) if end[1] > start[1] else (end[0], start[1])
    _add_arrow(axes, Curve([start, corner, corner, end], [Curve.MOVETO, *[Curve.CURVE4] * 3]), INK, "-")


def draw_arc(axes: Axes, start: Place, end: Place, height: float, colour: str = INK) -> None:
    """Over what stands between; with a negative height, under it. Its middle reaches three quarters of the height."""
    lean = 0.22 * (end[0] - start[0])
    controls = [(start[0] + lean, start[1] + height), (end[0] - lean, end[1] + height)]
    _add_arrow(axes, Curve([start, *controls, end], [Curve.MOVETO, *[Curve.CURVE4] * 3]), colour, "-")


def draw_label(axes: Axes, at: Place, text: str, colour: str = ACCENT) -> None:
    """A weight, on its edge."""
    if text:
        draw_text(axes, at, text, colour, 7.5, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})


def draw_text(axes: Axes, at: Place, text: str, colour: str = INK, size: float = 9, **options: Any) -> None:
    """Text in its place."""
    axes.text(*at, text, **{"color": colour, "fontsize": size, "ha": "center", "va": "center", "zorder": 4, **options})


def _add_arrow(axes: Axes, path: Curve, colour: str, line: str) -> None:
    axes.add_patch(
        FancyArrowPatch(
            path=path, arrowstyle="-|>", mutation_scale=8, color=colour, linewidth=1.0, linestyle=line, zorder=2
        )
    )
