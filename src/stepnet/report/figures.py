"""Figures for files and notebooks, the style of a paper, and atomic writing.

Every `plot_…` function takes colours, fonts and size from matplotlib's rcParams; `stepnet figure` sets `paper_style`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal

import matplotlib
from cycler import cycler
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from stepnet.errors import UserError
from stepnet.files import atomic_file

INK, FILL, QUIET, ACCENT = "#1f3a5f", "#dbe6f4", "#8a8f98", "#b5541c"
# Okabe and Ito's colours, distinguishable by the colour-blind; markers and dashes distinguish them in print.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
Columns = Literal[1, 2]
WIDTHS: dict[Columns, float] = {1: 3.35, 2: 6.9}  # of one and of two columns of a paper, in inches
SMALLEST = 6.2  # points: no letter is smaller
NARROWEST = 2.0  # inches: panels narrower than this stand one below the other
LETTER = 0.56  # the mean width of a letter, in sizes of its font
HANDLE = 7  # letters: what a legend's entry takes beside its label


class Picture(Figure):
    """A figure that notebooks display, whether or not pyplot was imported."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"layout": "constrained", **options})

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


@contextmanager
def paper_style(columns: Columns = 1) -> Iterator[None]:
    """Set matplotlib's rcParams for a paper: `with paper_style(2): plot_curves(runs).savefig("curves.pdf")`."""
    style: Any = {
        "figure.figsize": (WIDTHS[columns], 0.72 * WIDTHS[1]),
        "axes.prop_cycle": cycler(color=COLOURS) + cycler(marker=MARKERS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 8,
        "axes.titlesize": 8,
        "axes.labelsize": 8,
        "legend.fontsize": 7,
        "legend.title_fontsize": 7,
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


def panels(count: int, height: float = 0.9) -> tuple[Picture, list[Axes]]:
    """Return a picture with panels side by side, or stacked if the figure is too narrow.

    `height` is that of one panel of a stack, in heights of the caller's own figures.
    """
    width, full_height = matplotlib.rcParams["figure.figsize"]
    if width >= count * NARROWEST:
        picture = Picture(figsize=(width, min(full_height, 0.8 * width)))
        return picture, list(picture.subplots(1, count, squeeze=False)[0])
    picture = Picture(figsize=(width, count * height * min(full_height, 0.72 * width)))
    return picture, list(picture.subplots(count, 1, squeeze=False)[:, 0])


def legend_above(picture: Figure, handles: Sequence[Artist], title: str = "") -> None:
    """Put a legend above all axes, in as many columns as fit."""
    if not handles:
        return
    width = 72 * picture.get_size_inches()[0]
    letters = int(width / (LETTER * legend_size(matplotlib.rcParams["legend.fontsize"])))
    labels = ["\n".join(wrap(str(handle.get_label()), letters - HANDLE)) for handle in handles]
    longest = max(len(line) for label in labels for line in label.split("\n"))
    most = max(1, min(len(labels), letters // (longest + HANDLE)))
    columns = math.ceil(len(labels) / math.ceil(len(labels) / most))  # rows of nearly equal length
    title_letters = int(width / (LETTER * legend_size(matplotlib.rcParams["legend.title_fontsize"])))
    picture.legend(
        handles, labels, title="\n".join(wrap(title, title_letters)), loc="outside upper center", ncols=columns
    )


def legend_size(size: str | float | None) -> float:
    """Return a font size of rcParams in points."""
    return float(FontProperties(size=size).get_size_in_points())


def shorten_middle(text: str, letters: int) -> str:
    """Shorten a long name by leaving out its middle."""
    half = (letters - 1) // 2
    return text if len(text) <= letters else f"{text[:half]}…{text[-half:]}"


def rc_styles() -> Iterator[dict[str, Any]]:
    """Return the styles of the caller's property cycle."""
    return cycle([dict(style) for style in matplotlib.rcParams["axes.prop_cycle"]])


def check_suffix(path: Path) -> str:
    """Return the format of a file name; raise if matplotlib cannot write it."""
    known = FigureCanvasBase.get_supported_filetypes()
    suffix = path.suffix.lstrip(".").lower()
    if suffix not in known:
        raise UserError(f"cannot write {path.name!r}: the suffix must be one of {', '.join(sorted(known))}")
    return suffix


def write_figure(figure: Figure, path: Path) -> None:
    """Write the figure to `path`, atomically; the same figure gives the same bytes, without a date in it."""
    suffix = check_suffix(path)
    dates: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with atomic_file(path) as partial, matplotlib.rc_context({"svg.hashsalt": "stepnet"}):
        figure.savefig(partial, format=suffix, metadata=dates.get(suffix))
