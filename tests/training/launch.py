"""What a rank of a distributed test runs: FOLDER, then `key=value` changes.

`gates=MODE` is stochastic depth, `first=EPOCHS` trains another network before, `die=STEP` kills rank 1 once,
`double=1` takes one step in float64.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parents[1]))

from stepnet.training import Watcher, train  # noqa: E402
from training.tiny import tiny_config  # noqa: E402


class DieOnce(Watcher):
    """Rank 1 dies at a step, the first time that it comes there."""

    def __init__(self, step: int, mark: Path) -> None:
        self.at, self.mark = step, mark

    def step(self, progress, images_per_second):
        if progress.step == self.at and os.environ["RANK"] == "1" and not self.mark.exists():
            self.mark.write_text("died")
            os.kill(os.getpid(), 9)


def main(folder: Path, *changes: str) -> None:
    options = dict(change.split("=") for change in changes)
    watcher = DieOnce(int(options["die"]), folder.parent / "died") if "die" in options else None
    recipe = {"stochastic_depth": 0.5, "stochastic_mode": options["gates"]} if "gates" in options else {}
    if "double" in options:
        once = {"epochs": 1, "batch_size": 1500, "milestones": (), "weight_decay": 0.0}
        train(tiny_config(folder, model="tiny_double", freeze_bn=True, recipe=once))
        return
    if "first" in options:
        train(tiny_config(folder.with_name("first"), recipe={"epochs": int(options["first"])}))
    train(tiny_config(folder, freeze_bn=True, checkpoint_steps=2, recipe=recipe), watcher=watcher)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
