"""What is called as a run goes on: the display of the command line, early stopping, an average of the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

if TYPE_CHECKING:
    from stepnet.training.run import EpochMetrics
    from stepnet.training.trainer import Trainer


class Callback:
    """Override what you need; here every method does nothing. `examples/callbacks.py` has two.

    A trainer has `config`, `recipe`, `task`, `network` (the module that is trained), `optimizer`, `progress` (epoch,
    step, sums so far), `evaluated` (the module that is evaluated and written: a callback may set another one) and
    `stop()`, which ends the run after the epoch under way.
    """

    def note(self, text: str) -> None:
        """Something begins that takes a while."""

    def message(self, text: str) -> None:
        """Something happened that a log should say."""

    def start(self, trainer: Trainer) -> None:
        """The run begins, or resumes at `trainer.progress`; so does each level of a multilevel run."""

    def step(self, trainer: Trainer) -> None:
        """A step is done. The sums of `trainer.progress` are those of the last reading, about a second old."""

    def epoch(self, trainer: Trainer, line: EpochMetrics) -> None:
        """An epoch is done and evaluated; `line` is what is about to be written to metrics.jsonl."""

    def state_dict(self) -> dict[str, Tensor]:
        """What a checkpoint holds of the callback, so that a resumed run has the bits of one that was not stopped."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take up what `state_dict` gave, after `start`."""


class WeightAverage(Callback):
    """An exponential moving average of weights and buffers, `decay` of the old one at each step (`--ema`).

    It is what is evaluated and written; the network that is trained stays as it is.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay

    def start(self, trainer: Trainer) -> None:
        mean = get_ema_multi_avg_fn(self.decay)  # type: ignore[no-untyped-call]
        self.average = AveragedModel(trainer.network, multi_avg_fn=mean, use_buffers=True)
        trainer.evaluated = self.average.module

    def step(self, trainer: Trainer) -> None:
        self.average.update_parameters(trainer.network)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.average.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.average.load_state_dict(state)


class EarlyStopping(Callback):
    """End the run when the task's first metric has not improved for `patience` epochs (`--patience`).

    It is that of the validation set, or of the test set where there is none, which then chooses.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.best, self.waited = math.nan, 0

    def epoch(self, trainer: Trainer, line: EpochMetrics) -> None:
        task = trainer.task.record
        value = task.choice(line)
        improved = math.isnan(self.best) or task.metric.better(value, self.best)
        self.best, self.waited = (value, 0) if improved else (self.best, self.waited + 1)
        if self.waited >= self.patience:
            trainer.stop()

    def state_dict(self) -> dict[str, Tensor]:
        return {"best": torch.tensor(self.best, dtype=torch.float64), "waited": torch.tensor(self.waited)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.best, self.waited = state["best"].item(), int(state["waited"])


class CallbackList(Callback):
    """Several, called in their order; each has its state under the name of its class."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self.callbacks = {
            f"{type(each).__name__}{sum(type(other) is type(each) for other in callbacks[:n]) or ''}": each
            for n, each in enumerate(callbacks)
        }

    def note(self, text: str) -> None:
        for each in self.callbacks.values():
            each.note(text)

    def message(self, text: str) -> None:
        for each in self.callbacks.values():
            each.message(text)

    def start(self, trainer: Trainer) -> None:
        for each in self.callbacks.values():
            each.start(trainer)

    def step(self, trainer: Trainer) -> None:
        for each in self.callbacks.values():
            each.step(trainer)

    def epoch(self, trainer: Trainer, line: EpochMetrics) -> None:
        for each in self.callbacks.values():
            each.epoch(trainer, line)

    def state_dict(self) -> dict[str, Tensor]:
        return {f"{name}.{key}": t for name, each in self.callbacks.items() for key, t in each.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, each in self.callbacks.items():
            own = {key.removeprefix(f"{name}."): t for key, t in state.items() if key.startswith(f"{name}.")}
            if own:
                each.load_state_dict(own)
