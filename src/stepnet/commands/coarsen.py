"""`stepnet coarsen`: drop blocks of a trained network, and measure the loss of accuracy."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from stepnet.commands.parsing import ImportFlag
from stepnet.errors import UserError
from stepnet.escaping import echo, print_json


@dataclass
class Coarsen(ImportFlag):
    """Drop blocks of a trained network and refit the steps of the others; without --matrix, no weight changes.

    Prints the test error for each number of remaining blocks: with the least important blocks removed, the same with
    step sizes and coefficients refitted on a few training items without labels, and with random blocks removed.
    """

    run: Annotated[Positional[str], arg(metavar="RUN|MODEL")]
    """The folder of a run, a model file, or the name of pretrained weights."""
    keep: float = 0.75
    """The share of the blocks to keep."""
    items: int = 300
    """Training images (or pieces of text) on which blocks are chosen and steps refitted."""
    matrix: bool = False
    """Refit a matrix in place of each step size, multiplied into the last layer of its block."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """Save the refitted network in this file."""
    figure: Annotated[Path | None, arg(metavar="FILE")] = None
    """Plot the error against the number of remaining blocks (svg, png, pdf, …)."""
    data_root: str | None = None
    """Folder of all data sets; by default $STEPNET_DATA or ~/.cache/stepnet."""
    json: bool = False
    """Print the exact figures as JSON instead; progress goes to standard error."""

    def __call__(self) -> None:
        from stepnet.commands.columns import RIGHT, print_table
        from stepnet.exchange import description_of, load, save
        from stepnet.report import WAYS, check_suffix, coarsening_study, paper_style, plot_coarsening, write_figure
        from stepnet.training import data_of

        self.import_modules([self.run])
        if self.out is not None and self.out.is_dir():
            raise UserError(f"{self.out} is a folder: name a file, such as coarse.safetensors")
        if self.figure is not None:
            check_suffix(self.figure)
        network = load(self.run)
        data = data_of(description_of(network), root=self.data_root)
        say = partial(echo, file=sys.stderr) if self.json else echo
        study = coarsening_study(network, self.keep, self.items, data, note=say, matrix=self.matrix)
        if self.json:
            tested = [(way, n, value) for way, by_blocks in study.scores.items() for n, value in by_blocks.items()]
            rows = [{"way": way, "blocks": n, study.metric.name: value} for way, n, value in tested]
            print_json({"run": self.run, "blocks": study.blocks, study.metric.name: study.whole, "coarsened": rows})
        else:
            headings = ["blocks", *(RIGHT + way for way in WAYS)]
            print_table(headings, study.rows, f"{self.run}: test {study.metric}")
        if self.figure is not None:
            with paper_style():
                write_figure(plot_coarsening(study), self.figure)
            say(f"wrote {self.figure}")
        if self.out is not None:
            save(study.network, self.out)
            say(f"wrote {self.out}: {study.blocks} blocks became {min(study.scores['refitted'])}")
