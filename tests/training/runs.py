"""Runs that are stopped and compared."""

import signal

import torch

from stepnet.training import Callback
from training.tiny import read_all


def metrics_of(run):
    return [
        {k: v for k, v in line.items() if k != "seconds" and not k.endswith("_per_second")} for line in run.metrics()
    ]


def assert_same_run(a, b):
    for name in ("last", "best"):
        mine, theirs = read_all(getattr(a, name)), read_all(getattr(b, name))
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    assert metrics_of(a) == metrics_of(b)


class StopAt(Callback):
    """Sends this process a signal at a given step, as a person or a scheduler would."""

    def __init__(self, epoch, step, number=signal.SIGTERM):
        self.at, self.number = (epoch, step), number

    def step(self, trainer):
        if (trainer.progress.epoch, trainer.progress.step) == self.at:
            signal.raise_signal(self.number)
