"""Evaluate finished runs and write them into a results file: `python results/collect.py results/NAME.json RUN...`."""

from __future__ import annotations

import sys
from pathlib import Path

from stepnet.report.results import record
from stepnet.training import Run, evaluate


def main(path: Path, folders: list[Path]) -> None:
    """A run that is not finished is passed over, and told of."""
    for folder in sorted(folders):
        run = Run(folder)
        found = evaluate(run)
        if found.epochs < run.config.recipe.epochs:
            print(f"{folder}: {found.epochs} of {run.config.recipe.epochs} epochs, not recorded")
        else:
            record(run, found, path)
            print(f"{folder}: {found.error:.2f} %")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]])
