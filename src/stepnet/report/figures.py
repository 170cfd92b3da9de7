"""Writing a figure: the suffix chooses the format, and the file is whole or not there."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from stepnet.errors import UserError
from stepnet.files import whole_file

INK, FILL, QUIET, ACCENT = "#1f3a5f", "#dbe6f4", "#8a8f98", "#b5541c"


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
        figure.savefig(partial, format=suffix, dpi=150)
