"""Losses and other sums of a task, accumulated on the device without synchronisation and read at intervals."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.tensors import widened
from stepnet.training.checkpoint import Progress
from stepnet.training.processes import Processes
from stepnet.training.tasks import Task

SECONDS_BETWEEN_READINGS = 1.0
SEEN = "seen"  # the number of items: a folder may hold images that cannot be decoded


def at_least_float32(outputs: Tensor) -> Tensor:
    """Return the outputs in float32 or float64: a loss is not computed in half precision."""
    return outputs.to(torch.promote_types(outputs.dtype, torch.float32)) if outputs.is_floating_point() else outputs


class Sums:
    """Named sums in float64 on a device, or on the CPU if the device has no float64."""

    def __init__(self, device: torch.device, values: Mapping[str, float] | None = None) -> None:
        self.names = tuple(values or ())
        place = "cpu" if device.type == "mps" else device
        self.values = torch.tensor(list((values or {}).values()), dtype=torch.float64, device=place)

    def add(self, named: Mapping[str, Tensor], count: int) -> None:
        """Add the sums of a batch of `count` items, without synchronisation."""
        values = torch.stack([*map(widened, named.values()), self.values.new_tensor(count)])
        if not self.names:
            self.names, self.values = (*named, SEEN), torch.zeros_like(values)
        if self.names != (*named, SEEN):
            raise UserError(
                f"the sums {', '.join(named)} were {', '.join(self.names[:-1])} before: the task has changed"
            )
        self.values += values

    def read(self, processes: Processes) -> dict[str, float]:
        """Return the sums over all processes. Synchronises with the device."""
        return dict(zip(self.names, processes.sum(self.values), strict=True)) if self.names else {}


def evaluate_batch(model: nn.Module, task: Task, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Return the sums of a batch of the test set."""
    outputs = at_least_float32(model(inputs))
    return {"loss": task.loss(outputs, targets), **task.test_sums(outputs, targets)}


def figures_of(task: Task, sums: Mapping[str, float]) -> dict[str, float]:
    """Return the mean loss and the metrics, by name."""
    means = {name: value / sums[SEEN] for name, value in sums.items() if name != SEEN}
    return {"loss": means["loss"], **task.figures(means)}


class EpochScores:
    """The scores of the epoch so far, over all processes.

    They are summed on the device and read about once a second, at the same steps in all processes. Sums of float32
    losses in float64 are exact, so they do not depend on when they are read, or on whether the run was interrupted.
    """

    def __init__(self, progress: Progress, processes: Processes) -> None:
        self.progress, self.processes = progress, processes
        self.next_reading = 0
        self.since = 0  # the step of the reading before the last one
        self.per_second, self.readings = 0.0, 0
        self.begin()

    def begin(self) -> None:
        """Start from the sums of `progress`."""
        p = self.progress
        so_far = {**p.sums, SEEN: float(p.seen)} if p.sums else {}
        self.sums = Sums(self.processes.device, so_far if self.processes.is_main else dict.fromkeys(so_far, 0.0))
        self.clock = time.perf_counter()
        self.read_at, self.step, self.seen = self.clock, p.step, p.seen
        self.next_reading = min(self.next_reading, p.step) + 1

    def end_step(self) -> None:
        """Count a step."""
        self.progress.step += 1
        self.tick()

    def tick(self) -> None:
        """Count the seconds since the last tick as training: reading data counts, writing checkpoints does not."""
        now = time.perf_counter()
        self.progress.seconds += now - self.clock
        self.clock = now

    @property
    def due(self) -> bool:
        return self.progress.step >= self.next_reading

    def read(self) -> None:
        """Update `progress`. Synchronises with the device."""
        p = self.progress
        self.since = self.step
        p.sums = self.sums.read(self.processes)
        p.seen = int(p.sums.pop(SEEN, 0))
        self.tick()
        steps = p.step - self.step
        if steps:
            self.readings += 1
            (seconds,) = self.processes.largest([self.clock - self.read_at])
            self.per_second = (p.seen - self.seen) / max(seconds, 1e-9)
            self.next_reading = p.step + max(1, int(SECONDS_BETWEEN_READINGS * steps / max(seconds, 1e-9)))
        self.read_at, self.step, self.seen = self.clock, p.step, p.seen

    def pause(self) -> None:
        """Do not count the seconds since the last tick as training."""
        self.read_at += time.perf_counter() - self.clock
        self.clock = time.perf_counter()
