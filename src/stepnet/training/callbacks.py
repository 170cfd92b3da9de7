"""Callbacks of the training loop: the protocol, an average of the weights, early stopping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partialmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

if TYPE_CHECKING:
    from stepnet.training.recipes import Recipe
    from stepnet.training.run import EpochMetrics
    from stepnet.training.trainer import Trainer


class Callback:
    """Base class whose methods do nothing: override those you need. `examples/callbacks.py` has two.

    A trainer has `config`, `recipe`, `task`, `network` (the module that is trained), `optimizer`, `progress` (epoch,
    step, sums so far), `evaluated` (the module that is evaluated and saved; a callback may set another one) and
    `stop()`, which ends the run after the current epoch.
    """

    def note(self, text: str) -> None:
        """Called when something slow begins, such as reading data or compiling."""

    def message(self, text: str) -> None:
        """Called with an event for the log."""

    def start(self, trainer: Trainer) -> None:
        """Called when the run, or a level of a multilevel run, begins or resumes at `trainer.progress`."""

    def step(self, trainer: Trainer) -> None:
        """Called after each step. The sums in `trainer.progress` are up to about a second old."""

    def epoch(self, trainer: Trainer, line: EpochMetrics) -> None:
        """Called after each epoch and its evaluation, before `line` is written to metrics.jsonl."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors that a checkpoint must hold for this callback to resume."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned. Called after `start`."""


class WeightAverage(Callback):
    """Exponential moving average of weights and buffers, `decay * average + (1 - decay) * weights` (`--ema`).

    The average is evaluated and saved; training does not use it.
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

    The metric is measured on the validation set, or on the test set if there is none.
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


def recipe_callbacks(recipe: Recipe) -> list[Callback]:
    """Return the callbacks that a recipe asks for."""
    average: list[Callback] = [] if recipe.ema is None else [WeightAverage(recipe.ema)]
    return average if recipe.patience is None else [*average, EarlyStopping(recipe.patience)]


class CallbackList:
    """Several callbacks, called in order; the state of each is saved under the name of its class."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self.callbacks = {
            f"{type(each).__name__}{sum(type(other) is type(each) for other in callbacks[:n]) or ''}": each
            for n, each in enumerate(callbacks)
        }

    def _each(self, method: str, *arguments: object) -> None:
        for each in self.callbacks.values():
            getattr(each, method)(*arguments)

    note, message = partialmethod(_each, "note"), partialmethod(_each, "message")
    start, step, epoch = partialmethod(_each, "start"), partialmethod(_each, "step"), partialmethod(_each, "epoch")

    def state_dict(self) -> dict[str, Tensor]:
        return {f"{name}.{key}": t for name, each in self.callbacks.items() for key, t in each.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, each in self.callbacks.items():
            tensors = {key.removeprefix(f"{name}."): t for key, t in state.items() if key.startswith(f"{name}.")}
            if tensors:
                each.load_state_dict(tensors)
