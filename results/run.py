"""Train the runs of the protocol and record the finished ones: `python results/run.py [NUMBER …] --out FOLDER`.

Without numbers, all experiments are run in order of importance. Each run resumes from its checkpoint, so the command
may be interrupted and repeated; of two that run at the same time, the second skips the runs that the first is training.
A finished run is evaluated and recorded in its results file; `python results/page.py` generates the page.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from experiments import EXPERIMENTS, HERE

from stepnet.errors import UserError
from stepnet.files import exclusive_lock, try_lock
from stepnet.report.results import record
from stepnet.training import Run, TrainConfig, evaluate
from stepnet.training.loop import train_config
from stepnet.training.signals import Interrupted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help=", ".join(EXPERIMENTS))
    parser.add_argument("--out", type=Path, required=True, help="the folder of all runs, outside the repository")
    parser.add_argument("--seeds", type=int, help="train this many of each network's seeds, not the protocol's")
    options = parser.parse_args()
    if unknown := {*options.numbers} - {*EXPERIMENTS}:
        parser.error(f"no experiment {', '.join(sorted(unknown))}: expected some of {', '.join(EXPERIMENTS)}")
    for number in options.numbers or EXPERIMENTS:
        experiment = EXPERIMENTS[number]
        for config in experiment.configs(options.out.absolute(), options.seeds or experiment.seeds):
            if config.weights is not None and not is_done(Path(config.weights)):
                print(f"{config.out}: waits for {config.weights}")
                continue
            Path(config.out).mkdir(parents=True, exist_ok=True)
            lock = try_lock(Path(config.out))
            if lock is None:
                print(f"{config.out}: another process trains it")
                continue
            with lock:
                train_and_record(config, HERE / experiment.files[-1])


def is_done(folder: Path) -> bool:
    run = Run(folder)
    return run.config_file.exists() and len(run.metrics()) == run.config.recipe.epochs


def train_and_record(config: TrainConfig, path: Path) -> None:
    print(f"{time.strftime('%H:%M')} {config.out}", flush=True)
    run = train_config(config)
    result = evaluate(run)
    with exclusive_lock(path):
        record(run, result, path)
    print(f"{time.strftime('%H:%M')} {config.out}: {result.error:.2f} %", flush=True)


if __name__ == "__main__":
    try:
        main()
    except (UserError, Interrupted) as stopped:
        raise SystemExit(f"run.py: {stopped}") from None
