"""`stepnet compare`."""

from __future__ import annotations

import csv
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tyro.conf import Positional

from stepnet.commands.columns import RIGHT, print_table
from stepnet.commands.train import TrainingFlags, print_coefficients, shown
from stepnet.errors import UserError
from stepnet.files import whole_file
from stepnet.training.config import read_label

if TYPE_CHECKING:
    from stepnet.training import Comparison
    from stepnet.training.paired import PairedDifferences


@dataclass(kw_only=True)
class Compare(TrainingFlags):
    """Train several networks alike and compare their errors.

    They see the same batches in the same order, and start from the same weights where names and shapes agree.
    """

    models: Annotated[Positional[list[str]], tyro.conf.arg(metavar="MODEL [MODEL ...]")]
    """Names from `stepnet models`, timm/NAME or torchvision/NAME. NAME:SCHEME steps the blocks with that scheme;
    NAME,OPTION=VALUE sets an option of that model. The first one gives recipe and weights."""
    seeds: int = 1
    """Runs of each model, with seeds from --seed up; the table shows mean and standard deviation."""
    out: Path = Path("runs/compare")
    """Folder for all the runs."""
    report: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the page of `stepnet report` to this file."""
    json: bool = False
    """Print the exact figures as JSON instead; progress goes to standard error."""
    csv: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write one row for each run to this file."""

    def __call__(self) -> None:
        from stepnet.training import compare
        from stepnet.training.display import Display

        if len(set(self.models)) < len(self.models) or not self.models:
            raise UserError(f"models {' '.join(self.models)}: expected one or more different names")
        if self.seeds < 1:
            raise UserError(f"seeds = {self.seeds}: expected 1 or more")
        base = self.run_config(read_label(self.models[0]).model, self.out)
        display = Display("", sys.stderr if self.json else None)
        with shown(display):
            rows = compare(self.models, base, self.seeds, self.out, display.titled)
        if display.quiet:
            return
        if self.csv is not None:
            _write_csv(rows, self.csv)
        if self.report is not None:
            from stepnet.report.page import write_report

            write_report([run.folder for row in rows for run in row.runs], self.report)
        if self.json:
            print(json.dumps(_figures(rows), indent=2))
            return
        _print_rows(rows, f"test error in % on {self.data}, seeds: {self.seeds}, epochs: {base.recipe.epochs}")
        for row in rows:
            print_coefficients(row.runs[0].finished()[-1]["k"], f"{row.model}, seed {base.seed}: ")
        for path in (self.csv, self.report):
            if path is not None:
                print(f"wrote {path}")


def _print_rows(rows: Sequence[Comparison], title: str) -> None:
    from stepnet.report.catalogue import short_count
    from stepnet.training.comparison import mean_and_deviation

    headings = ["model", *(RIGHT + h for h in ("param.", "mult-adds", "s/epoch", "last epoch", "best epoch"))]
    lines = [
        [
            row.model,
            short_count(row.parameters),
            short_count(row.multiply_adds) if row.multiply_adds else "",
            f"{statistics.median(row.seconds):.3g}",
            mean_and_deviation(row.last),
            mean_and_deviation(row.best),
            *([mean_and_deviation(row.top5)] if rows[0].top5 else []),
        ]
        for row in rows
    ]
    print_table([*headings, *([f"{RIGHT}top-5"] if rows[0].top5 else [])], lines, title, ("best epoch", "top-5"))
    print("The best epoch is chosen on the test set: compare by the last one.")
    for row in rows[1:]:
        gaps = row.difference(rows[0])
        lower, higher = gaps.signs
        print(f"{row.model} minus {rows[0].model}: {gaps}")
        if len(gaps) > 1:
            print(f"  seed by seed {' '.join(f'{gap:+.2f}' for gap in gaps.by_seed.values())}")
            print(f"  lower with {lower}, higher with {higher}; by the 95 % interval {_verdict(gaps)}")


def _verdict(gaps: PairedDifferences) -> str:
    if abs(gaps.mean) <= gaps.half_width:
        return "no difference is shown"
    return "it is lower" if gaps.mean < 0 else "it is higher"


def _figures(rows: Sequence[Comparison]) -> dict[str, Any]:
    def numbers(gaps: PairedDifferences) -> dict[str, Any]:
        enough = len(gaps) > 1
        return {"by_seed": gaps.by_seed, "mean": gaps.mean, "half_width_95": gaps.half_width if enough else None}

    return {
        "models": [
            {
                "model": row.model,
                "parameters": row.parameters,
                "multiply_adds": row.multiply_adds,
                "seeds": row.seeds,
                "test_error": row.last,
                "best_test_error": row.best,
                "top5_error": row.top5 or None,
                "seconds_per_epoch": row.seconds,
                "runs": [str(run.folder) for run in row.runs],
            }
            for row in rows
        ],
        "differences": {row.model: numbers(row.difference(rows[0])) for row in rows[1:]},
        "against": rows[0].model,
    }


def _write_csv(rows: Sequence[Comparison], path: Path) -> None:
    figures = ["test_error", "best_test_error", "top5_error", "seconds_per_epoch", "parameters", "multiply_adds"]
    with whole_file(path) as partial, partial.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["model", "seed", *figures, "run"])
        for row in rows:
            for n, run in enumerate(row.runs):
                top5 = row.top5[n] if row.top5 else ""
                values = [row.last[n], row.best[n], top5, row.seconds[n], row.parameters, row.multiply_adds]
                table.writerow([row.model, row.seeds[n], *values, run.folder])
