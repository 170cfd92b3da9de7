"""What a person sees of a run: a progress bar on a terminal, a plain line for each epoch elsewhere."""

from __future__ import annotations

import os
import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from stepnet.training import checkpoint
from stepnet.training.config import TrainConfig
from stepnet.training.loop import Watcher
from stepnet.training.run import EpochMetrics


class Display(Watcher):
    """Loss, error, images/s and the time left."""

    def __init__(self, title: str = "") -> None:
        self.title = title
        self.bar: Progress | None = None
        self.quiet = int(os.environ.get("RANK", 0)) > 0  # of many processes one speaks

    def titled(self, title: str) -> Display:
        """The same display for the next run."""
        self.close()
        self.title = title
        return self

    def start(self, config: TrainConfig, steps_per_epoch: int, progress: checkpoint.Progress) -> None:
        self.epochs, self.steps = config.recipe.epochs, steps_per_epoch
        if progress.epoch >= self.epochs:
            self._print(f"{self.title}: done already, {config.out} holds all {self.epochs} epochs")
            return
        if progress.epoch or progress.step:
            self._print(f"{self.title}: going on from epoch {progress.epoch + 1}, step {progress.step}")
        if sys.stdout.isatty() and not self.quiet:
            columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, console=Console(), transient=True)
            done = self._steps_done(progress)
            self.task = self.bar.add_task(self.title, total=self.epochs * self.steps, completed=done)
            self.bar.start()

    def step(self, progress: checkpoint.Progress, images_per_second: float) -> None:
        if self.bar is not None and progress.seen:
            loss, error = progress.loss_sum / progress.seen, 100 * progress.wrong / progress.seen
            text = f"{self.title} {progress.epoch + 1}/{self.epochs} loss {loss:.3f} error {error:.2f}%"
            self.bar.update(
                self.task, completed=self._steps_done(progress), description=f"{text} {images_per_second:.0f} images/s"
            )

    def _steps_done(self, progress: checkpoint.Progress) -> int:
        return progress.epoch * self.steps + progress.step

    def epoch(self, line: EpochMetrics) -> None:
        width = len(str(self.epochs))
        self._print(
            f"{self.title} epoch {line['epoch'] + 1:{width}}/{self.epochs}  loss {line['loss']:.4f}  "
            f"error {line['error']:5.2f}%  test {line['test_error']:5.2f}%  lr {line['lr']:.4g}  "
            f"{line['images_per_second']:.0f} images/s"
        )

    def close(self) -> None:
        """Take the bar off the screen, whatever ended the run."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _print(self, text: str) -> None:
        if self.quiet:
            return
        if self.bar is not None:
            self.bar.console.print(text, highlight=False)
        else:
            print(text, flush=True)
