"""`stepnet figure`: the paper's figures by name. `stepnet report`: runs as one page."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from stepnet.commands.parsing import ImportFlag
from stepnet.errors import UserError
from stepnet.escaping import echo

if TYPE_CHECKING:
    from stepnet.report import Picture


@dataclass
class DrawFigure(ImportFlag):
    """Draw a figure of the paper, optionally from your runs: PNG, SVG or PDF, one or two columns wide.

    networks: schematics (figures 1, 2 left); k: learned coefficients (4); curves: training and test (3, 5);
    compression: error against parameters (2 right); lesion: error after dropping blocks; exit: error against the steps
    that images take with an early exit; trajectory: states in their principal plane; spectrum: eigenvalues of f on the
    stability region; stability: regions of schemes; modified: the modified equation on gradient, diffusion or
    transport, or the steps along a curve.
    """

    name: Positional[
        Literal[
            "networks",
            "k",
            "curves",
            "compression",
            "stability",
            "modified",
            "lesion",
            "exit",
            "trajectory",
            "spectrum",
        ]
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
        from stepnet.report import check_suffix, draw, paper_style, write_figure

        out = self.out or Path(f"{self.name}.pdf")
        check_suffix(out)
        self.import_modules(self.subjects)
        with paper_style(self.columns):
            if self.name == "lesion":
                picture = self._lesion()
            elif self.name == "exit":
                picture = self._exit()
            else:
                picture = draw(self.name, self.subjects, self.labels or None)
            write_figure(picture, out)
        echo(f"wrote {out}")

    def _lesion(self) -> Picture:
        from stepnet.commands.columns import RIGHT, print_table
        from stepnet.report import lesion_study, plot_lesion, studies

        by_network = studies(lesion_study, self.subjects, labels=self.labels or None)
        for title, one in by_network.items():
            longer = {one.names[n]: f"{error:.2f}" for n, error in one.rescaled.items()}
            changes = [(what, error, error - one.intact) for what, error in one.rows]
            rows = [[what, f"{error:.2f}", f"{change:+.2f}", longer.get(what, "")] for what, error, change in changes]
            headings = ["dropped", *(RIGHT + each for each in ("error", "change", "neighbour's step longer"))]
            print_table(headings, rows, f"{title}: test error in %")
        return plot_lesion(by_network)

    def _exit(self) -> Picture:
        from stepnet.commands.columns import RIGHT, print_table
        from stepnet.report import exit_study, plot_exit, studies

        by_network = studies(exit_study, self.subjects, labels=self.labels or None)
        for title, points in by_network.items():
            rows = [[f"{tolerance:g}", f"{one.steps:.2f}", f"{one.error:.2f}"] for tolerance, one in points.items()]
            headings = ["tolerance", RIGHT + "mean steps", RIGHT + "error"]
            print_table(headings, rows, f"{title}: steps of an image and test error in %")
        return plot_exit(by_network)


@dataclass
class Report(ImportFlag):
    """Write runs as one HTML page that works offline: summary, curves, learned k_n, error against cost, commands."""

    runs: Annotated[Positional[list[Path]], arg(metavar="RUN [RUN ...]")]
    """The folders of the runs. Runs on different data sets are shown in different tables."""
    out: Annotated[Path, arg(aliases=["-o"], metavar="FILE")] = Path("report.html")
    """Where to write the page."""
    labels: Annotated[list[str], arg(metavar="NAME ...")] = field(default_factory=list)
    """Names for the networks, in the order of their first runs; by default the options that differ."""

    def __call__(self) -> None:
        from stepnet.report import write_report

        if not self.runs:
            raise UserError("no runs: name their folders, as in stepnet report runs/compare/*/*")
        self.import_modules(map(str, self.runs), needed=False)
        write_report(self.runs, self.out, self.labels or None)
        echo(f"wrote {self.out} ({self.out.stat().st_size / 1e6:.1f} MB)")
