"""When a run is saved, what is never saved, and how it stops."""

from __future__ import annotations

import math
import time

import torch

from stepnet.errors import UserError
from stepnet.exchange.model_files import write_model
from stepnet.training import checkpoint
from stepnet.training.describe import describe_progress
from stepnet.training.job import Job
from stepnet.training.run import EpochMetrics
from stepnet.training.scores import EpochScores
from stepnet.training.signals import Interrupted, StopRequest


class Saver:
    """Saves by step and by clock, and before a stop; weights that are not finite never replace good ones."""

    def __init__(self, job: Job, scores: EpochScores, stop: StopRequest) -> None:
        self.job, self.scores, self.stop = job, scores, stop
        self.saved_at = time.monotonic()

    def after_step(self) -> None:
        """Save if it is time to; save and stop if any process was asked to.

        One process looks at every step. Of several, all look at the steps at which they read their scores anyway.
        """
        progress, alone = self.job.progress, self.job.processes.count == 1
        reading = self.scores.due
        if reading:
            self.scores.read()
            self.check_finite("the loss", progress.loss_sum)
        late = False
        if alone or reading:
            late = self.stop_if_asked(time.monotonic() - self.saved_at > 60 * self.job.config.checkpoint_minutes)
        if late or progress.step % self.job.config.checkpoint_steps == 0:
            self.save()

    def stop_if_asked(self, late: bool = False) -> bool:
        """Save and stop if any process was asked to; otherwise whether any is late."""
        number, any_late = self.job.processes.largest([self.stop.number, late])
        if number:
            self.scores.pause()
            self.save()
            raise Interrupted(int(number), f"saved {self.job.run.last}; the same command goes on from there")
        return bool(any_late)

    def save(self) -> None:
        """Write the checkpoint from which the run can go on."""
        job = self.job
        self.scores.read()
        self.check_finite("the loss", job.progress.loss_sum)
        self.check_weights()
        description = describe_progress(job.description, job.net, job.progress.epoch)

        def write() -> None:
            job.run.check_still_there()
            checkpoint.save(job.run.last, job.net, job.optimizer, job.progress, description)

        job.processes.on_main(write)
        self.saved_at = time.monotonic()
        self.scores.pause()

    def end_epoch(self, line: EpochMetrics) -> None:
        """Write the epoch's line, its weights if they are the best so far, and the checkpoint that counts it."""
        job, progress = self.job, self.job.progress
        self.check_weights()
        if line["test_error"] < progress.best_error:
            progress.best_error, progress.best_epoch = line["test_error"], progress.epoch

        def write() -> None:
            job.run.check_still_there()
            errors = line["test_error"], line.get("test_top5_error")
            description = describe_progress(job.description, job.net, line["epoch"] + 1, *errors)
            write_model(job.run.model, job.net.state_dict(), description)
            if progress.best_epoch == progress.epoch:
                write_model(job.run.best, job.net.state_dict(), description)
            job.run.append_metrics(line)

        job.processes.on_main(write)
        progress.begin_epoch(progress.epoch + 1)
        self.scores.begin()
        self.save()

    def check_weights(self) -> None:
        """A finite loss may have had an infinite gradient, which reaches the optimiser's state first."""
        states = self.job.optimizer.state
        values = {n: t for n, t in self.job.net.state_dict().items() if t.is_floating_point()}
        for name, parameter in self.job.net.named_parameters():
            kept = states.get(parameter, {}).items()
            values |= {f"{key} of {name}": t for key, t in kept if torch.is_tensor(t) and t.is_floating_point()}
        sizes = torch.stack([value.double().abs().sum() for value in values.values()])
        if not bool(sizes.isfinite().all()):
            for name, size in zip(values, sizes.tolist(), strict=True):
                self.check_finite(name, size)

    def check_finite(self, what: str, value: float) -> None:
        """Refuse to go on with a value that is not finite."""
        if math.isfinite(value):
            return
        job, p = self.job, self.job.progress
        tested = what == "the test loss"
        batches, since, until = (job.tests, 0, len(job.tests)) if tested else (job.batches, self.scores.since, p.step)
        image = batches.first_not_finite(p.epoch, since, until)
        if image is not None:
            place = getattr(batches.source, "places", range(len(batches.source)))[image]  # in the set that was given
            which = "test" if tested else "training"
            raise UserError(
                f"{job.data.name}: item {place} of the {which} set holds NaN or infinity: repair or remove it"
            )
        kept = f"the last good checkpoint is {job.run.last}" if job.run.last.exists() else "no checkpoint yet"
        lr = job.learning_rate(p.epoch, max(p.step - 1, 0))
        raise UserError(f"{what} is {value} at epoch {p.epoch}, step {p.step}, lr {lr:g}: lower --lr; {kept}")
