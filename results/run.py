"""Train the runs of the protocol and record the finished ones: `python results/run.py [NUMBER …] --out FOLDER`.

Without numbers, all experiments of `protocol.toml` are run in order. Each run resumes from its checkpoint, so the
command may be interrupted and repeated; of two that run at the same time, the second skips the runs that the first is
training. A finished run is evaluated and recorded in its results file; `python results/page.py` generates the page.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepnet.errors import UserError
from stepnet.files import exclusive_lock, try_lock
from stepnet.report.results import record
from stepnet.schema import read_as
from stepnet.training import Run, TrainConfig, evaluate, get_recipe, read_label
from stepnet.training.comparison import comparison_configs, run_folder
from stepnet.training.loop import train_config
from stepnet.training.saving import Interrupted

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Experiment:
    """An experiment of `protocol.toml`, where its fields are explained."""

    number: str
    title: str
    claim: str
    files: tuple[str, ...]
    networks: tuple[str, ...]
    data: str
    recipe: str
    seeds: int
    changes: dict[str, Any] = field(default_factory=dict)
    trained: tuple[str, ...] = ()
    start: str | None = None
    begins_with: str | None = None
    effect: float | None = None
    beside: tuple[tuple[str, str], ...] = ()
    remark: str = ""

    @property
    def command(self) -> str:
        """The command that makes its runs."""
        return f"python results/run.py {self.number} --out RUNS"

    def configs(self, out: Path, seeds: int) -> Iterator[TrainConfig]:
        """Yield the configs of its runs, as `stepnet compare` makes them."""
        recipe = get_recipe(self.recipe).override(self.changes)
        base = TrainConfig(read_label(self.networks[0]).model, self.data, recipe=recipe)
        models = [network for network in self.networks if network not in self.trained]
        start = self.start or self.networks[0]
        for _, config in comparison_configs(models, base, seeds, out / self.number, start):
            if self.begins_with is not None:
                weights = run_folder(out / self.begins_with, self.networks[0], config.seed)
                config = dataclasses.replace(config, weights=str(weights))
            yield config


def read_protocol() -> dict[str, Experiment]:
    """Return the experiments of `protocol.toml` by their numbers."""
    path = HERE / "protocol.toml"
    tables = tomllib.loads(path.read_text())
    return {number: read_as(Experiment, {"number": number, **tables[number]}, str(path), "forbid") for number in tables}


EXPERIMENTS = read_protocol()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help=", ".join(EXPERIMENTS))
    parser.add_argument("--out", type=Path, required=True, help="the folder of all runs, outside the repository")
    parser.add_argument("--seeds", type=int, help="how many seeds of each network to train, instead of the protocol's")
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
                print(f"{config.out}: another process is training it")
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
