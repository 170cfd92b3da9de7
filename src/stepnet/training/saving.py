"""When a run is saved and how it stops; values that are not finite are never saved.

Ctrl-C and SIGTERM stop a run after the current step, which is saved; before the first step, at once.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import torch

from stepnet.errors import UserError
from stepnet.exchange import write_model
from stepnet.tensors import widened
from stepnet.training import checkpoint
from stepnet.training.describe import describe_progress
from stepnet.training.run import EpochMetrics
from stepnet.training.scores import EpochScores
from stepnet.training.sharding import gather, is_sharded, local
from stepnet.training.trainer import Trainer


class Saver:
    """Saves a run at intervals of steps and of minutes, after each epoch, and before it stops."""

    def __init__(self, trainer: Trainer, scores: EpochScores, stop: StopRequest) -> None:
        self.trainer, self.scores, self.stop = trainer, scores, stop
        self.saved_at = time.monotonic()

    def after_step(self) -> None:
        """Save if it is time to; save and stop if any process received a signal.

        A single process checks at every step; several processes check when they read their scores, which synchronises
        them anyway.
        """
        progress, single = self.trainer.progress, self.trainer.processes.count == 1
        reading = self.scores.due
        if reading:
            self.scores.read()
            self.check_finite("the loss", progress.loss_sum)
        late = False
        if single or reading:
            late = self.stop_if_asked(time.monotonic() - self.saved_at > 60 * self.trainer.config.checkpoint_minutes)
        if late or progress.step % self.trainer.config.checkpoint_steps == 0:
            self.save()

    def stop_if_asked(self, late: bool = False) -> bool:
        """Save and stop if any process received a signal; otherwise return whether any process is late in saving."""
        number, any_late = self.trainer.processes.largest([self.stop.number, late])
        if number:
            self.scores.pause()
            self.save()
            raise Interrupted(int(number), f"saved {self.trainer.run.last}; run the same command to resume")
        return bool(any_late)

    def save(self) -> None:
        """Write the checkpoint."""
        trainer = self.trainer
        self.scores.read()
        self.check_finite("the loss", trainer.progress.loss_sum)
        self.check_weights()
        description = describe_progress(trainer.description, trainer.network, trainer.progress.epoch)
        callbacks = trainer.callbacks.state_dict()
        collected = checkpoint.collect(trainer.network, trainer.optimizer)  # from all processes

        def write() -> None:
            trainer.run.check_still_there()
            checkpoint.save(trainer.run.last, collected, trainer.progress, description, callbacks)

        trainer.processes.on_main(write)
        self.saved_at = time.monotonic()
        self.scores.pause()

    def end_epoch(self, line: EpochMetrics) -> None:
        """Write the weights, the metrics and the checkpoint of a finished epoch."""
        trainer, progress = self.trainer, self.trainer.progress
        self.check_weights()
        metric = trainer.task.record.metric
        value = trainer.task.record.choice(line)
        if progress.best is None or metric.better(value, progress.best):
            progress.best, progress.best_epoch = value, progress.epoch
        if progress.stopped:
            line["stopped"] = True

        description = describe_progress(trainer.description, trainer.evaluated, line["epoch"] + 1, line)
        weights = gather(trainer.evaluated)

        def write() -> None:
            trainer.run.check_still_there()
            write_model(trainer.run.model, weights, description)
            if progress.best_epoch == progress.epoch:
                write_model(trainer.run.best, weights, description)
            trainer.run.append_metrics(line)

        trainer.processes.on_main(write)
        progress.begin_epoch(progress.epoch + 1)
        self.scores.begin()
        self.save()

    def check_weights(self) -> None:
        """Check weights and optimiser state, where an infinite gradient of a finite loss appears first."""
        states = self.trainer.optimizer.state
        values = {n: t for n, t in self.trainer.network.state_dict().items() if t.is_floating_point()}
        for name, parameter in self.trainer.network.named_parameters():
            state = states.get(parameter, {}).items()
            values |= {f"{key} of {name}": t for key, t in state if torch.is_tensor(t) and t.is_floating_point()}
        if self.trainer.evaluated is not self.trainer.network:
            average = self.trainer.evaluated.state_dict().items()
            values |= {f"{name} of the average": t for name, t in average if t.is_floating_point()}
        sizes = torch.stack([widened(local(value)).abs().sum() for value in values.values()])
        parts = is_sharded(self.trainer.network)  # otherwise all processes have the same values
        totals: list[float] = self.trainer.processes.sum(sizes) if parts else sizes.tolist()
        for name, size in zip(values, totals, strict=True):
            self.check_finite(name, size)

    def check_finite(self, what: str, value: float) -> None:
        """Raise for a value that is not finite, and name the item of the data set that caused it, if one did."""
        if math.isfinite(value):
            return
        trainer, p = self.trainer, self.trainer.progress
        tested = what == "the test loss"
        batches, since, until = (
            (trainer.tests, 0, len(trainer.tests)) if tested else (trainer.batches, self.scores.since, p.step)
        )
        image = batches.first_not_finite(p.epoch, since, until)
        if image is not None:
            place = getattr(batches.source, "places", range(len(batches.source)))[image]  # in the user's data set
            which = "test" if tested else "training"
            raise UserError(
                f"{trainer.data.name}: item {place} of the {which} set holds NaN or infinity: repair or remove it"
            )
        kept = f"the last good checkpoint is {trainer.run.last}" if trainer.run.last.exists() else "no checkpoint yet"
        lr = trainer.learning_rate(p.epoch, max(p.step - 1, 0))
        raise UserError(f"{what} is {value} at epoch {p.epoch + 1}, step {p.step}, lr {lr:g}: lower --lr; {kept}")


class Interrupted(KeyboardInterrupt):
    """A signal stopped the run after its checkpoint was saved; the exit code is 128 + the signal's number."""

    def __init__(self, number: int, where: str) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}; {where}")
        self.exit_code = 128 + number


# Under a launcher Ctrl-C arrives twice, from the terminal and from the launcher: within these seconds they count once.
DEBOUNCE = 1.0


class StopRequest:
    """The number of the signal that asks the run to stop, 0 until one arrives, and its time."""

    number: int = 0
    at: float = 0.0
    notify: Callable[[str], None] | None = None  # confirms the signal; None before the first step: stop at once


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Record SIGINT and SIGTERM, so that the run can stop after its step; a second one stops the process at once."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():  # Python allows handlers in the main thread only
        yield request
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if not request.number:
            request.number, request.at = number, time.monotonic()
            if request.notify is None:
                raise Interrupted(number, "before its first step; run the same command to start again")
            again = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
            with suppress(RuntimeError):  # the signal may have arrived while a line was being printed
                request.notify(f"stopping after this step; {again} again to quit now")
        elif time.monotonic() - request.at > DEBOUNCE:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
