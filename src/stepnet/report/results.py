"""Measured test errors: what the files in `results/` say, and how a run gets there (`stepnet evaluate --record`).

A file that holds any is a JSON object with a list `runs`, each with the fields of `Measurement` and more of what was
measured; other files tell of other things and are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from stepnet.errors import UserError
from stepnet.files import read_file, whole_file
from stepnet.report.paper import PaperRow
from stepnet.schema import LARGEST, read_as
from stepnet.training.recipes import recipe_name

if TYPE_CHECKING:
    from stepnet.training import EvaluationResult, Run


@dataclass(frozen=True)
class Measurement:
    """The test error, in per cent, of one run."""

    model: str
    data: str
    recipe: str
    seed: int
    test_error: float
    scheme: str | None = None  # another than the model's own
    options: dict[str, Any] = field(default_factory=dict)  # of the model, where they were changed


def read_measurements(folder: Path) -> list[Measurement]:
    """All runs in the files of a folder; none if there is no such folder."""
    found: list[Measurement] = []
    for path in sorted(folder.glob("*.json")):
        content = _read(path)
        found += read_as(list[Measurement], content.get("runs", []) if isinstance(content, dict) else [], str(path))
    return found


def record(run: Run, found: EvaluationResult, path: Path) -> None:
    """Write a run's figures into a results file, replacing an earlier one of the same run."""
    content = _read(path) if path.exists() else {"runs": []}
    if not isinstance(content, dict) or not isinstance(content.get("runs"), list):
        raise UserError(
            f"{path} tells of something else than runs: record into another file, such as results/NAME.json"
        )
    config, epochs, environment = run.config, run.finished(), run.recorded_environment()
    entry = {
        "model": config.model,
        "data": config.data,
        "recipe": recipe_name(config.recipe),
        "scheme": config.scheme,
        **({"options": config.model_kwargs} if config.model_kwargs else {}),
        "seed": config.seed,
        "epochs": found.epochs,
        "test_error": round(found.error, 4),
        "best_test_error": round(min(line["test_error"] for line in epochs), 4),
        "test_loss": round(found.loss, 6),
        "train_loss": epochs[-1]["loss"],
        "images_per_second": median(line["images_per_second"] for line in epochs),
        "k": epochs[-1]["k"],
        "command": re.sub(r"(?<![^\s=])/(?:[^/\s]+/)+", "", environment["command"]),  # no folders of this machine
        **{key: environment[key] for key in ("revision", "torch", "machine", "device")},
    }
    same = ("model", "data", "recipe", "scheme", "options", "seed")
    others = [old for old in content["runs"] if any(old.get(key) != entry.get(key) for key in same)]
    others.append(entry)
    text = json.dumps(content | {"runs": ["RUNS"]}, indent=1)
    lines = ",\n  ".join(map(json.dumps, others))  # a line each: hundreds of them stay readable
    with whole_file(path) as partial:
        partial.write_text(text.replace('"RUNS"', lines) + "\n")


def measured(row: PaperRow, measurements: Sequence[Measurement]) -> str:
    """The mean error of the runs of a row's network on its data; under another recipe, that is said. '' if none.

    A run in which another scheme marched the blocks, or another option held, is of another network.
    """
    errors: dict[str, list[float]] = {}
    for one in measurements:
        if (one.model, one.data, one.scheme, one.options) == (row.name, row.dataset, None, {}):
            errors.setdefault(one.recipe, []).append(one.test_error)
    if row.recipe in errors:
        return f"{fmean(errors[row.recipe]):.2f}"
    return ", ".join(f"{fmean(values):.2f} ({recipe})" for recipe, values in errors.items())


def _read(path: Path) -> Any:
    try:
        return json.loads(read_file(path, LARGEST))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a results file: {error}") from None
