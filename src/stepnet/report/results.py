"""Measured test errors: what the files in `results/` say.

A file that holds any is a JSON object with a list `runs`, each with the fields of `Measurement`; other files tell
of other things and are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from stepnet.errors import UserError
from stepnet.report.paper import Row


@dataclass(frozen=True)
class Measurement:
    """The test error, in per cent, of one run."""

    model: str
    data: str
    recipe: str
    seed: int
    test_error: float


def read_measurements(folder: Path) -> list[Measurement]:
    """All runs in the files of a folder; none if there is no such folder."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text())
            runs = content.get("runs", []) if isinstance(content, dict) else []
            found += [Measurement(**{name: run[name] for name in Measurement.__dataclass_fields__}) for run in runs]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}: {error!r}; expected runs with {', '.join(Measurement.__dataclass_fields__)}"
            ) from None
    return found


def measured(row: Row, measurements: Sequence[Measurement]) -> str:
    """The mean error of the runs of a row's network on its data; under another recipe, that is said. '' if none."""
    errors: dict[str, list[float]] = {}
    for one in measurements:
        if (one.model, one.data) == (row.name, row.dataset):
            errors.setdefault(one.recipe, []).append(one.test_error)
    if row.recipe in errors:
        return f"{fmean(errors[row.recipe]):.2f}"
    return ", ".join(f"{fmean(values):.2f} ({recipe})" for recipe, values in errors.items())
