"""What a rank of a distributed test runs: FOLDER MODE [STEP].

It trains three networks, since a group of processes outlives a run: `first` takes one step in float64, `text` is a GPT
in float64, `second` has stochastic depth of that mode. Rank 1 is killed at that step of the second, once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parents[1]))

from stepnet.data import get_data  # noqa: E402
from stepnet.nets.gpt import GPT  # noqa: E402
from stepnet.training import Callback, Recipe, train  # noqa: E402
from training.tiny import tiny_config  # noqa: E402


class DieOnce(Callback):
    """Rank 1 dies at a step, the first time that it comes there."""

    def __init__(self, step: int, mark: Path) -> None:
        self.at, self.mark = step, mark

    def step(self, trainer):
        if trainer.progress.step == self.at and os.environ["RANK"] == "1" and not self.mark.exists():
            self.mark.write_text("died")
            os.kill(os.getpid(), 9)


def train_text(out: Path) -> None:
    """Six steps of a GPT under LM, on this file."""
    torch.manual_seed(0)
    data = get_data(__file__, context=8)
    network = GPT(1, 8, "lm", num_classes=data.num_classes, context=8).double()
    recipe = Recipe(epochs=2, epoch_steps=3, batch_size=6, optimizer="adamw", lr=0.01, milestones=(), clip=1.0)
    train(network, data, recipe, out=out, quiet=True)


def main(folder: Path, mode: str, dies_at: str = "") -> None:
    once = {"epochs": 1, "batch_size": 1500, "milestones": (), "weight_decay": 0.0}
    train(tiny_config(folder / "first", model="tiny_double", freeze_bn=True, recipe=once))
    train_text(folder / "text")
    callbacks = [DieOnce(int(dies_at), folder / "died")] if dies_at else []
    recipe = {"stochastic_depth": 0.5, "stochastic_mode": mode}
    train(tiny_config(folder / "second", freeze_bn=True, checkpoint_steps=2, recipe=recipe), callbacks=callbacks)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
