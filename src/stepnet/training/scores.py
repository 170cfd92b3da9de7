"""Losses and errors, summed on the device, where nobody waits for them, and read at intervals."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.training.checkpoint import Progress
from stepnet.training.processes import Processes
from stepnet.training.run import EvaluationScores

TOP = 5  # the second error that ImageNet is measured by
SECONDS_BETWEEN_READINGS = 1.0


def at_least_float32(logits: Tensor) -> Tensor:
    """The logits in float32, or in float64 where the network computes in it: a loss is not taken in half precision."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def score(loss: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """The sum of the losses, the number of errors and of images, in float64."""
    # The images are counted: a folder may hold some that cannot be decoded.
    wrong = (logits.argmax(1) != labels).sum()
    return torch.stack([loss.double(), wrong.double(), loss.new_tensor(len(labels)).double()])


def evaluate_batch(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The scores of a batch, and the number of labels that are not among the five likeliest classes."""
    logits = at_least_float32(model(images))
    likeliest = logits.topk(min(TOP, logits.shape[1])).indices
    missed = (likeliest != labels[:, None]).all(1).sum()
    return torch.cat([score(F.cross_entropy(logits, labels, reduction="sum"), logits, labels), missed.double()[None]])


def mean_scores(sums: Sequence[float], classes: int) -> EvaluationScores:
    """The mean loss and the errors in per cent, from the sums of `evaluate_batch`; top-5 beyond five classes."""
    loss, wrong, count, missed = sums
    found: EvaluationScores = {"test_loss": loss / count, "test_error": 100 * wrong / count}
    if classes > TOP:
        found["test_top5_error"] = 100 * missed / count
    return found


class EpochScores:
    """The scores of the epoch so far, over all processes.

    They are summed on the device and read about once a second, at steps on which all processes agree. Sums of float32
    losses in float64 are exact, so it does not matter when they are read, nor whether the run was stopped in between.
    """

    def __init__(self, progress: Progress, processes: Processes) -> None:
        self.progress, self.processes = progress, processes
        self.next_reading = 0
        self.since = 0  # the step after which the last reading began
        self.images_per_second = 0.0
        self.begin()

    def begin(self) -> None:
        """Take over the sums of the run's position."""
        p = self.progress
        so_far = [p.loss_sum, p.wrong, float(p.seen)] if self.processes.is_main else [0.0, 0.0, 0.0]
        self.sums = torch.tensor(so_far, dtype=torch.float64, device=self.processes.device)
        self.clock = time.perf_counter()
        self.read_at, self.step, self.seen = self.clock, p.step, p.seen
        self.next_reading = min(self.next_reading, p.step) + 1

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """One step more. Waits for nothing."""
        self.sums += score(loss, logits, labels)
        self.progress.step += 1
        self.tick()

    def tick(self) -> None:
        """Count the seconds since the last tick as training: reading images is, writing checkpoints is not."""
        now = time.perf_counter()
        self.progress.seconds += now - self.clock
        self.clock = now

    @property
    def due(self) -> bool:
        return self.progress.step >= self.next_reading

    def read(self) -> None:
        """Bring `progress` up to date. The device is waited for."""
        p = self.progress
        self.since = self.step
        p.loss_sum, p.wrong, seen = self.processes.sum(self.sums)
        p.seen = int(seen)
        self.tick()
        steps = p.step - self.step
        if steps:
            (seconds,) = self.processes.largest([self.clock - self.read_at])
            self.images_per_second = (p.seen - self.seen) / max(seconds, 1e-9)
            self.next_reading = p.step + max(1, int(SECONDS_BETWEEN_READINGS * steps / max(seconds, 1e-9)))
        self.read_at, self.step, self.seen = self.clock, p.step, p.seen

    def pause(self) -> None:
        """What happened since the last tick is not training."""
        self.read_at += time.perf_counter() - self.clock
        self.clock = time.perf_counter()
