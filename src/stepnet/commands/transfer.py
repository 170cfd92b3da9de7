"""`stepnet transfer`: the best learning rate at several depths, with and without a rule for depth."""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from tyro.conf import Positional

from stepnet.commands.train import TrainingFlags, shown
from stepnet.errors import UserError
from stepnet.escaping import echo, print_json

if TYPE_CHECKING:
    from stepnet.training import Losses


@dataclass(kw_only=True)
class Transfer(TrainingFlags):
    """Train a network at several depths and learning rates, with and without a rule for depth.

    The rule starts from the smallest depth. Depths are counted as in the model's name. The same command resumes.
    """

    model: Annotated[Positional[str], tyro.conf.arg(metavar="MODEL")]
    """A name from `stepnet models`, such as gpt8x32 or preact_resnet20."""
    depths: tuple[int, ...]
    """Depths to train, as 4 8 16 32."""
    lrs: tuple[float, ...]
    """Learning rates to train with, as 0.001 0.002 0.004."""
    rule: Literal["1/L", "1/sqrt(L)"] = "1/L"
    """How the step size decreases with the depth L."""
    out: Path = Path("runs/transfer")
    """Folder for all the runs."""
    figure: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Plot the loss against the learning rate, a curve for each depth (svg, png, pdf, …)."""
    json: bool = False
    """Print the training losses as JSON instead; progress goes to standard error."""

    def __call__(self) -> None:
        from stepnet.commands.columns import RIGHT, print_table
        from stepnet.report import check_suffix, paper_style, plot_transfer, write_figure
        from stepnet.training import RULELESS, Display, transfer_grid

        if self.figure is not None:
            check_suffix(self.figure)
        if len(set(self.depths)) < 2 or not self.lrs or min(self.lrs) <= 0:
            raise UserError(f"depths {self.depths}, lrs {self.lrs}: expected two depths or more, and rates above 0")
        base = dataclasses.replace(self.run_config(self.model, self.out), out="")
        with shown(Display("", sys.stderr if self.json else None)) as display:
            grid = transfer_grid(
                base, sorted(set(self.depths)), sorted(set(self.lrs)), self.rule, self.out, display.titled
            )
        if display.quiet:
            return
        if self.json:
            print_json(loss_records(grid))
        for rule, name in () if self.json else ((RULELESS, "without a rule"), (self.rule, f"step size {self.rule}")):
            rows = [
                [str(depth), *(f"{losses[lr]:.4g}" for lr in losses), f"{min(losses, key=lambda lr: losses[lr]):g}"]
                for depth, losses in grid[rule].items()
            ]
            rates = [f"{lr:g}" for lr in sorted(set(self.lrs))]
            print_table(["depth", *(RIGHT + r for r in (*rates, "best"))], rows, f"training loss, {name}")
        if self.figure is not None:
            with paper_style(2):
                write_figure(plot_transfer(grid), self.figure)
            echo(f"wrote {self.figure}", file=sys.stderr if self.json else None)


def loss_records(grid: Losses) -> list[dict[str, object]]:
    """The grid as records; a run that diverged has no loss."""
    return [
        {"rule": rule, "depth": depth, "lr": lr, "loss": loss if math.isfinite(loss) else None}
        for rule, by_depth in grid.items()
        for depth, by_rate in by_depth.items()
        for lr, loss in by_rate.items()
    ]
