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


class Pen:
    """Draws on some axes."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes

    def state(self, at: Place, text: str, quiet: bool = False) -> None:
        """A state, or quiet what was there before the first one."""
        colour = QUIET if quiet else INK
        face = "white" if quiet else FILL
        self.axes.add_patch(Circle(at, RADIUS, facecolor=face, edgecolor=colour, linewidth=1.1, zorder=3))
        self.text(at, text, colour, 9)

    def box(self, at: Place, text: str) -> None:
        """A block."""
        corner = (at[0] - BOX[0] / 2, at[1] - BOX[1] / 2)
        look: Any = {"boxstyle": "round,pad=0,rounding_size=0.1", "facecolor": WARM, "edgecolor": INK}
        self.axes.add_patch(FancyBboxPatch(corner, *BOX, **look, linewidth=1.1, zorder=3))
        self.text(at, text, size=8.5)

    def join(self, at: Place) -> None:
        """A weighted sum."""
        self.axes.add_patch(Circle(at, JOIN, facecolor="white", edgecolor=INK, linewidth=1.0, zorder=3))
        self.text(at, "+", size=7)

    def arrow(self, start: Place, end: Place, dashed: bool = False, shrink: Place = (0, 0)) -> None:
        """A straight one, shortened at both ends by `shrink`."""
        length = ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5
        unit = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
        start = (start[0] + shrink[0] * unit[0], start[1] + shrink[0] * unit[1])
        end = (end[0] - shrink[1] * unit[0], end[1] - shrink[1] * unit[1])
        self._add_arrow(Curve([start, end]), QUIET if dashed else INK, "--" if dashed else "-")

    def elbow(self, start: Place, end: Place) -> None:
        """Between rows: upwards first and then to the right, or to the right first and then downwards."""
        corner = (start[0], end[1]) if end[1] > start[1] else (end[0], start[1])
        self._add_arrow(Curve([start, corner, corner, end], [Curve.MOVETO, *[Curve.CURVE4] * 3]), INK, "-")

    def arc(self, start: Place, end: Place, height: float, colour: str = INK) -> None:
        """Over what stands between; with a negative height, under it. Its middle reaches three quarters of that."""
        lean = 0.22 * (end[0] - start[0])
        controls = [(start[0] + lean, start[1] + height), (end[0] - lean, end[1] + height)]
        self._add_arrow(Curve([start, *controls, end], [Curve.MOVETO, *[Curve.CURVE4] * 3]), colour, "-")

    def label(self, at: Place, text: str, colour: str = ACCENT) -> None:
        """A weight, on its edge."""
        if text:
            self.text(at, text, colour, 7.5, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})

    def text(self, at: Place, text: str, colour: str = INK, size: float = 9, **options: Any) -> None:
        """Text in its place."""
        look: Any = {"color": colour, "fontsize": size, "ha": "center", "va": "center", "zorder": 4}
        self.axes.text(*at, text, **{**look, **options})

    def _add_arrow(self, path: Curve, colour: str, line: str) -> None:
        look: Any = {"arrowstyle": "-|>", "mutation_scale": 8, "linewidth": 1.0, "zorder": 2}
        self.axes.add_patch(FancyArrowPatch(path=path, color=colour, linestyle=line, **look))
