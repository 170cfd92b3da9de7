"""`stepnet figure`: the paper's figures by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from stepnet.commands.import_flag import ImportFlag
from stepnet.escaping import echo


@dataclass
class DrawFigure(ImportFlag):
    """Draw a figure of the paper, optionally from your runs: PNG, SVG or PDF, one or two columns wide.

    networks: schematics (figures 1, 2 left); k: learned coefficients (4); curves: training and test (3, 5);
    compression: error against parameters (2 right); lesion: error after dropping blocks; trajectory: states in their
    principal plane; spectrum: eigenvalues of f on the stability region; stability: regions of schemes; modified: the
    modified equation on gradient, diffusion or transport, or the steps along a curve.
    """

    name: Positional[
        Literal["networks", "k", "curves", "compression", "stability", "modified", "lesion", "trajectory", "spectrum"]
    ]
    """Which figure."""
    subjects: Annotated[Positional[list[str]], arg(metavar="[RUN|MODEL|SCHEME ...]")]
    """What to draw: folders of runs, names of models or schemes, or the example of `modified`."""
    out: Annotated[Path | None, arg(aliases=["-o"], metavar="FILE")] = None
    """Where to write it; by default NAME.pdf."""
    columns: Literal[1, 2] = 1
    """As wide as one column of a paper, or as two."""
    labels: Annotated[list[str], arg(metavar="NAME ...")] = field(default_factory=list)
    """Names for the networks of the runs, in the order of their first runs; by default the options that differ."""

    def __call__(self) -> None:
        from stepnet.report import Picture, check_suffix, draw, lesions, paper_style, plot_lesion, write_figure

        out = self.out or Path(f"{self.name}.pdf")
        check_suffix(Picture(), out)
        self.import_modules(self.subjects)
        with paper_style(self.columns):
            if self.name == "lesion":
                from stepnet.commands.columns import RIGHT, print_table

                by_network = lesions(self.subjects, labels=self.labels or None)
                for title, one in by_network.items():
                    longer = {one.names[n]: f"{error:.2f}" for n, error in one.rescaled.items()}
                    rows = [
                        [what, f"{error:.2f}", f"{error - one.intact:+.2f}", longer.get(what, "")]
                        for what, error in one.rows
                    ]
                    headings = ["dropped", *(RIGHT + each for each in ("error", "change", "neighbour's step longer"))]
                    print_table(headings, rows, f"{title}: test error in %")
                picture = plot_lesion(by_network)
            else:
                picture = draw(self.name, self.subjects, self.labels or None)
            write_figure(picture, out)
        echo(f"wrote {out}")
