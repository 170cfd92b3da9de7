"""Figures: one kind for files and notebooks, the style of a paper, and writing whole or not at all.

Every `plot_…` function takes colours, fonts and size from matplotlib's rcParams; `stepnet figure` sets `paper_style`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import matplotlib
from cycler import cycler
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.text import Text

from stepnet.errors import UserError
from stepnet.files import whole_file

INK, FILL, QUIET, ACCENT = "#1f3a5f", "#dbe6f4", "#8a8f98", "#b5541c"
# Okabe and Ito's colours, told apart by the colour-blind; markers and dashes tell them apart in print.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
Columns = Literal[1, 2]
WIDTHS: dict[Columns, float] = {1: 3.35, 2: 6.9}  # of one and of two columns of a paper, in inches


class Picture(Figure):
    """A figure that a notebook shows by itself, whether or not pyplot was imported."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"layout": "constrained", **options})

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


@contextmanager
def paper_style(columns: Columns = 1) -> Iterator[None]:
    """matplotlib's rcParams for a paper: `with paper_style(2): plot_curves(runs).savefig("curves.pdf")`."""
    style: Any = {
        "figure.figsize": (WIDTHS[columns], 0.72 * WIDTHS[1]),
        "axes.prop_cycle": cycler(color=COLOURS) + cycler(marker=MARKERS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 8,
        "axes.titlesize": 8,
        "axes.labelsize": 8,
        "legend.fontsize": 7,
        "legend.frameon": False,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "lines.linewidth": 1.2,
        "lines.markersize": 3.5,
        "pdf.fonttype": 42,  # text stays text, as journals ask
        "savefig.dpi": 300,
    }
    with matplotlib.rc_context(style):
        yield


def shrink_to(figure: Figure, width: float) -> None:
    """Make a figure that has a size of its own, such as a schematic, so wide at most, with all that is in it."""
    natural, height = figure.get_size_inches()
    factor = min(1.0, width / natural)
    figure.set_size_inches(factor * natural, factor * height)
    scale_marks(figure, factor)


def scale_marks(drawn: Artist, factor: float) -> None:
    """Scale what has its size in points: letters, outlines and the heads of arrows."""
    for text in drawn.findobj(Text):
        text.set_fontsize(factor * float(text.get_fontsize()))
    for patch in drawn.findobj(Patch):
        patch.set_linewidth(factor * patch.get_linewidth())
    for arrow in drawn.findobj(FancyArrowPatch):
        arrow.set_mutation_scale(factor * arrow.get_mutation_scale())


def rc_styles() -> Iterator[dict[str, Any]]:
    """The caller's own cycle of colours, markers and whatever else it holds."""
    return cycle([dict(style) for style in matplotlib.rcParams["axes.prop_cycle"]])


def check_suffix(figure: Figure, path: Path) -> str:
    """The format that a file's name asks for, or an error before anything is computed."""
    known = figure.canvas.get_supported_filetypes()
    suffix = path.suffix.lstrip(".").lower()
    if suffix not in known:
        raise UserError(f"cannot write {path.name!r}: the suffix must be one of {', '.join(sorted(known))}")
    return suffix


def write_figure(figure: Figure, path: Path) -> None:
    """Write the figure to `path`, or say in one line why not."""
    suffix = check_suffix(figure, path)
    with whole_file(path) as partial:
        figure.savefig(partial, format=suffix)
