"""`stepnet compare`: train several networks, and print their test metrics and paired differences."""

from __future__ import annotations

import csv
import math
import re
import statistics
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from tyro.conf import Positional

from stepnet.commands.columns import RIGHT, latex_table, print_table
from stepnet.commands.train import TrainingFlags, print_coefficients, shown
from stepnet.errors import UserError
from stepnet.escaping import echo, for_csv, print_json
from stepnet.files import atomic_file
from stepnet.training import TrainConfig, default_folder, file_name, read_label, write_label

if TYPE_CHECKING:
    from stepnet.training import NetworkRuns, PairedDifferences, RunHistory, TaskRecord

Figures = dict[str, Callable[["RunHistory"], float]]  # of a run, by their names in files


def figures_of(task: TaskRecord) -> Figures:
    """Return the figures to compare: the task's metrics, and the seconds of an epoch."""
    metric, *others = task.metrics
    return {
        f"test_{metric.name}": lambda run: run.last_score,
        f"best_test_{metric.name}": lambda run: run.best_score,
        **{other.name: methodcaller("last", f"test_{other.name}") for other in others},  # NaN where a run has none
        "seconds_per_epoch": lambda run: run.median("seconds"),
    }


@dataclass(kw_only=True)
class Compare(TrainingFlags):
    """Train several networks in the same way and compare their test errors.

    They see the same batches in the same order, and start from the same weights where names and shapes agree. The first
    model determines the recipe and the initial weights.
    """

    models: Annotated[Positional[list[str]], tyro.conf.arg(metavar="MODEL [MODEL ...]")]
    """Names as `stepnet train` takes them; NAME,OPTION=VALUE sets an option of that model."""
    schemes: str | None = None
    """Compare one model under these schemes, as in euler,lm,x0; OPTION=VALUE after one sets an option: euler,lm,k=0."""
    seeds: int = 1
    """Runs of each model, with seeds from --seed up; the table shows mean and standard deviation."""
    out: Path | None = None
    """Folder for all runs; by default runs/compare/DATA-MODEL-MODEL-…, the same for the same command."""
    overwrite: bool = False
    """Replace the runs in this folder, if there are any."""
    report: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the page of `stepnet report` to this file."""
    json: bool = False
    """Print the exact figures as JSON instead; progress goes to standard error."""
    latex: bool = False
    """Print the table for a paper instead, with the rules of booktabs; progress goes to standard error."""
    csv: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write one row for each run to this file."""

    def __call__(self) -> None:
        from stepnet.training import Display, compare

        if self.schemes is not None:
            if self.scheme != getattr(self.from_file, "scheme", None):
                raise UserError(f"--scheme {self.scheme} and --schemes {self.schemes}: give only one")
            self.models = under_schemes(self.models, self.schemes)
        if len(set(self.models)) < len(self.models) or not self.models:
            raise UserError(f"models {' '.join(self.models)}: expected one or more different names")
        if self.seeds < 1:
            raise UserError(f"seeds = {self.seeds}: expected 1 or more")
        base = self.run_config(read_label(self.models[0]).model, self.out)
        out = self.out or _default_folder(self.models, base)
        display = Display("", sys.stderr if self.json or self.latex else None)
        with shown(display):
            rows = compare(self.models, base, self.seeds, out, display.titled, overwrite=self.overwrite)
        if display.quiet:
            return
        if self.csv is not None:
            _write_csv(rows, self.csv)
        if self.report is not None:
            from stepnet.report import write_report

            write_report([run.folder for row in rows for run in row.runs], self.report)
        if self.json:
            print_json(_figures(rows))
            return
        metric = rows[0].task.metric
        unit = f" in {metric.unit}" if metric.unit else ""
        title = f"test {metric}{unit} on {self.data}, seeds: {self.seeds}, epochs: {base.recipe.epochs}"
        if self.latex:
            echo(latex_table(*_table(rows), title))
            return
        _print_rows(rows, title)
        for row in rows:
            print_coefficients(row.runs[0].epochs[-1]["k"], f"{row.label}, seed {base.seed}: ")
        for path in (self.csv, self.report):
            if path is not None:
                echo(f"wrote {path}")


def _default_folder(models: Sequence[str], base: TrainConfig) -> Path:
    """Return the default folder of a comparison, named by its models, its data and its settings."""
    single = default_folder(base)
    names = "-".join(map(file_name, models[1:] if models[0] == base.model else models))
    if len(names) > 100:
        names = f"{names[:80]}-{zlib.crc32(names.encode()):08x}"
    return Path("runs") / "compare" / "-".join(filter(None, (single.parent.name, names, single.name)))


def under_schemes(models: Sequence[str], schemes: str) -> list[str]:
    """Return the labels of a model with each scheme: `MODEL:euler` and `MODEL:lm,k=0` for `euler,lm,k=0`."""
    if len(models) != 1 or (label := read_label(models[0])).scheme is not None:
        named = " ".join(models) or "no model"
        raise UserError(f"--schemes with {named}: expected one model, without a scheme of its own")
    labels = [read_label(f"{label.model}:{scheme}") for scheme in re.split(r",(?!\w+=)", schemes)]
    if any(each.model != label.model or not each.scheme for each in labels):
        raise UserError(f"--schemes {schemes!r}: expected names with commas between them, as in euler,lm,k=0")
    return [write_label(each._replace(kwargs=label.kwargs | each.kwargs)) for each in labels]


def _table(rows: Sequence[NetworkRuns]) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells, with a row for each network."""
    from stepnet.report import short_count
    from stepnet.training import mean_and_deviation

    (metric, *others), figures = rows[0].task.metrics, figures_of(rows[0].task)
    columns = {"last epoch": f"test_{metric.name}", "best epoch": f"best_test_{metric.name}"}
    columns |= {
        str(other).removesuffix(" error"): other.name for other in others if rows[0].values(figures[other.name])
    }
    lines = [
        [
            row.label,
            short_count(row.cost.parameters) if row.cost else "",
            short_count(row.cost.multiply_adds) if row.cost and row.cost.multiply_adds else "",
            f"{statistics.median(row.values(figures['seconds_per_epoch'])):.3g}",
            *(mean_and_deviation(row.values(figures[figure]), metric.digits) for figure in columns.values()),
        ]
        for row in rows
    ]
    headings = ["model", *(RIGHT + heading for heading in ("param.", "mult-adds", "s/epoch", *columns))]
    return headings, lines


def _print_rows(rows: Sequence[NetworkRuns], title: str) -> None:
    headings, lines = _table(rows)
    print_table(headings, lines, title, [heading.removeprefix(RIGHT) for heading in headings[5:]])
    metric = rows[0].task.metric
    if not all(run.has_validation for row in rows for run in row.runs):
        echo("The best epoch is chosen on the test set: compare by the last one.")
    for row in rows:
        if row.cost and 2 * row.cost.own_steps < row.cost.steps:
            echo(f"{row.label}: its scheme takes {row.cost.own_steps} of {row.cost.steps} steps, its start the others")
    for row, gaps, corrected in _differences(rows):
        lower, higher = gaps.signs
        echo(f"{row.label} minus {rows[0].label}: {gaps.show(metric.digits)}")
        if len(gaps) > 1:
            echo(f"  seed by seed {' '.join(f'{gap:+.{metric.digits}f}' for gap in gaps.by_seed.values())}")
            verdict = {-1: "it is lower", 0: "no difference is shown", 1: "it is higher"}[gaps.side_of(0)]
            echo(f"  lower with {lower}, higher with {higher}; by the 95 % interval {verdict}")
            if len(rows) > 2:
                echo(f"  p = {corrected:.2g} after Holm's correction for {len(rows) - 1} comparisons")


def _differences(rows: Sequence[NetworkRuns]) -> list[tuple[NetworkRuns, PairedDifferences, float]]:
    """Return each network with its differences from the first, and their p-value after Holm's correction."""
    from stepnet.training import holm

    gaps = [row.difference(rows[0]) for row in rows[1:]]
    return list(zip(rows[1:], gaps, holm([each.p_value for each in gaps]), strict=True))


def _figures(rows: Sequence[NetworkRuns]) -> dict[str, object]:
    def numbers(gaps: PairedDifferences, corrected: float) -> dict[str, object]:
        figures = {"half_width_95": gaps.half_width, "p": gaps.p_value, "p_holm": corrected}
        known = {name: value if len(gaps) > 1 else None for name, value in figures.items()}
        return {"by_seed": gaps.by_seed, "mean": gaps.mean, **known}

    return {
        "models": [
            {
                "model": row.label,
                **_cost(row),
                "seeds": [run.config.seed for run in row.runs],
                **{name: row.values(of) or None for name, of in figures_of(row.task).items()},
                "runs": [str(run.folder) for run in row.runs],
            }
            for row in rows
        ],
        "differences": {row.label: numbers(gaps, corrected) for row, gaps, corrected in _differences(rows)},
        "against": rows[0].label,
    }


def _write_csv(rows: Sequence[NetworkRuns], path: Path) -> None:
    with atomic_file(path) as partial, partial.open("w", newline="") as file:
        table = csv.writer(file)
        figures = figures_of(rows[0].task)
        table.writerow(["model", "seed", *figures, "parameters", "multiply_adds", "run"])
        for row in rows:
            for run in row.runs:
                values = [value if math.isfinite(value := of(run)) else "" for of in figures.values()]
                cells = [row.label, run.config.seed, *values, *_cost(row).values(), str(run.folder)]
                table.writerow(map(for_csv, cells))


def _cost(row: NetworkRuns) -> dict[str, int | None]:
    cost = row.cost
    return {name: getattr(cost, name, None) for name in ("parameters", "multiply_adds")}
