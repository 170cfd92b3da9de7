"""Measured test errors: reading the files in `results/`, and recording a run (`stepnet evaluate --record`).

A file that holds any is a JSON object with a list `runs`, each with the fields of `Measurement` and more of what was
measured; other files are skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from stepnet.errors import UserError, counted
from stepnet.files import atomic_file, read_file
from stepnet.report.paper import PaperRow
from stepnet.schema import LARGEST, read_as
from stepnet.training import TaskRecord, recipe_words

if TYPE_CHECKING:
    from stepnet.training import EvaluationResult, Run


@dataclass(frozen=True)
class Measurement:
    """The test error, in per cent, of one run."""

    model: str
    data: str
    recipe: str  # its name, and what was changed, as `recipe_words` has it
    seed: int
    test_error: float
    epochs: int = 0  # 0: as many as the recipe says
    scheme: str | None = None  # if it is not the model's default
    options: dict[str, Any] = field(default_factory=dict)  # of the model, where they were changed
    settings: dict[str, Any] = field(
        default_factory=dict
    )  # of the run: `weights` is true if it began with trained ones

    @property
    def configuration(self) -> str:
        """The configuration that its seeds share, in words."""
        return ", ".join([self.recipe, *(f"{name}={value}" for name, value in self.settings.items())])


def measured_here() -> Path:
    """Return the results folder of the package, or of the checkout."""
    packaged = Path(__file__).with_name("measured")
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "results"


def read_measurements(folder: Path) -> list[Measurement]:
    """Return all runs in the files of a folder; none if there is no such folder."""
    measurements: list[Measurement] = []
    for path in sorted(folder.glob("*.json")):
        content = _read(path)
        measurements += read_as(
            list[Measurement], content.get("runs", []) if isinstance(content, dict) else [], str(path)
        )
    return measurements


def record(run: Run, result: EvaluationResult, path: Path) -> None:
    """Write a run's figures into a results file, replacing those of the same run."""
    content = _read(path) if path.exists() else {"runs": []}
    if not isinstance(content, dict) or not isinstance(content.get("runs"), list):
        raise UserError(
            f"{path} tells of something else than runs: record into another file, such as results/NAME.json"
        )
    read_as(list[Measurement], content["runs"], str(path))
    config, epochs, environment = run.config, run.finished(), run.recorded_environment()
    if result.task.name != TaskRecord().name:
        raise UserError(
            f"{run.folder} is a run of {result.task.name}: the paper's tables hold errors of classification"
        )
    settings = config.changed_settings | ({"weights": True} if config.weights else {})
    entry = {
        "model": config.model,
        "data": config.data,
        "recipe": recipe_words(config.recipe),
        "scheme": config.scheme,
        **({"options": config.model_kwargs} if config.model_kwargs else {}),
        **({"settings": settings} if settings else {}),
        "seed": config.seed,
        "epochs": result.epochs,
        "test_error": round(result.error, 4),
        "best_test_error": round(min(line["test_error"] for line in epochs), 4),
        "test_loss": round(result.loss, 6),
        "train_loss": epochs[-1]["loss"],
        "images_per_second": median(line["images_per_second"] for line in epochs),
        "k": epochs[-1]["k"],
        "command": re.sub(r"(?<![^\s=])/(?:[^/\s]+/)+", "", environment["command"]),  # no folders of this machine
        **{key: environment[key] for key in ("revision", "torch", "machine", "device")},
    }
    same = ("model", "data", "recipe", "epochs", "scheme", "options", "settings", "seed")
    others = [old for old in content["runs"] if any(old.get(key) != entry.get(key) for key in same)]
    write_records(path, [*others, entry], **{name: value for name, value in content.items() if name != "runs"})


def write_records(path: Path, records: Sequence[Mapping[str, object]], name: str = "runs", **others: object) -> None:
    """Write a JSON object with a list of records, one to a line so that hundreds stay readable, after other entries."""
    head = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in others.items())
    lines = ",\n  ".join(map(json.dumps, records))
    with atomic_file(path) as partial:
        partial.write_text(f'{{\n{head} "{name}": [\n  {lines}\n ]\n}}\n')


@dataclass(frozen=True)
class MeasuredError:
    """The mean test error in per cent over the runs of one configuration."""

    error: float
    configuration: str  # the recipe, and what differs from it
    runs: int

    def __str__(self) -> str:
        return f"{self.error:.2f} ({self.configuration}, {counted(self.runs, 'run')})"


def measured(row: PaperRow, measurements: Sequence[Measurement]) -> MeasuredError | None:
    """Average the error of a row's network on its data over the runs of one configuration; None without runs.

    That is the recipe of the row; else the one with the most epochs. A run under another scheme, with another option
    of the model or from trained weights does not count.
    """
    groups: dict[str, list[Measurement]] = {}
    for one in measurements:
        ours = (one.model, one.data, one.scheme, one.options) == (row.name, row.dataset, None, {})
        if ours and not one.settings.keys() & {"weights", "pretrained"}:
            groups.setdefault(one.configuration, []).append(one)
    if not groups:
        return None
    chosen = row.recipe if row.recipe in groups else max(groups, key=lambda name: (groups[name][0].epochs, name))
    errors = [one.test_error for one in groups[chosen]]
    return MeasuredError(fmean(errors), chosen, len(errors))


def _read(path: Path) -> Any:
    try:
        return json.loads(read_file(path, LARGEST))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a results file: {error}") from None
