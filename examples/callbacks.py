"""Two callbacks from outside of stepnet: early stopping, and an average of the weights of the last epochs.

    python examples/callbacks.py

What a callback keeps in `state_dict` is in the run's checkpoint: stopped and started again, the run ends with the same
bits.
"""

from __future__ import annotations

import torch

import stepnet
from stepnet.training import Callback, Recipe


class EarlyStopping(Callback):
    """End the run when the test loss has not fallen for some epochs."""

    def __init__(self, patience: int = 3) -> None:
        self.patience = patience
        self.best, self.waited = torch.tensor(float("inf")), torch.tensor(0)

    def epoch(self, trainer, line):
        fell = line["test_loss"] < self.best
        self.best = torch.tensor(min(line["test_loss"], float(self.best)))
        self.waited = torch.tensor(0) if fell else self.waited + 1
        if self.waited >= self.patience:
            trainer.stop()

    def state_dict(self):
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state):
        self.best, self.waited = state["best"], state["waited"]


class Average(Callback):
    """Evaluate and write the mean of the weights over all steps from an epoch on; `--ema 0.999` is the built-in one."""

    def __init__(self, start_epoch: int) -> None:
        self.start_epoch = start_epoch

    def start(self, trainer):
        self.average = torch.optim.swa_utils.AveragedModel(trainer.network, use_buffers=True)
        trainer.evaluated = self.average.module

    def step(self, trainer):
        if trainer.progress.epoch < self.start_epoch:
            self.average.n_averaged.zero_()  # the next update copies
        self.average.update_parameters(trainer.network)

    def state_dict(self):
        return dict(self.average.state_dict())

    def load_state_dict(self, state):
        self.average.load_state_dict(state)


def main(out: str = "runs/callbacks", epochs: int = 6) -> stepnet.training.Run:
    """Train on digits with both."""
    recipe = Recipe(epochs=epochs, batch_size=64, optimizer="adamw", lr=0.003, schedule="cosine", weight_decay=0.01)
    callbacks = [EarlyStopping(patience=2), Average(start_epoch=epochs // 2)]
    run = stepnet.train("lm_resnet20", "digits", recipe, out=out, callbacks=callbacks)
    print(f"{run.folder}: {run.metrics()[-1]['test_error']:.2f} % after {len(run.metrics())} epochs")
    return run


if __name__ == "__main__":
    main()
