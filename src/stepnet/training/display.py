"""What a person sees of a run: a progress bar on a terminal, lines now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from stepnet.escaping import for_terminal
from stepnet.nets.bounds import outermost
from stepnet.schemes import Scheme
from stepnet.training import checkpoint
from stepnet.training.config import TrainConfig
from stepnet.training.crowding import Crowding
from stepnet.training.loop import Watcher
from stepnet.training.run import EpochMetrics

SECONDS_BETWEEN_LINES = 30.0  # within an epoch, where there is no terminal


class Display(Watcher):
    """What the run is; then loss, error, images/s and the time left. No line has more than 80 columns of its own."""

    def __init__(self, title: str = "", stream: TextIO | None = None) -> None:
        self.title = title
        self.stream = stream or sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115  (closed: nobody looks)
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.quiet = int(os.environ.get("RANK", 0)) > 0  # of many processes one speaks
        self.spoke_at = time.monotonic()
        self.scheme: Scheme | None = None
        self.outside: set[str] = set()
        self.described = False
        self.crowding: Crowding | None = None

    def titled(self, title: str) -> Display:
        """The same display for the next run."""
        self.close()
        self.title = title
        return self

    def note(self, text: str) -> None:
        """What takes a while now: on a terminal beside a moving bar, elsewhere a line."""
        if self.quiet:
            return
        if self.stream.isatty():
            if self.bar is None:
                columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
                self.bar = Progress(*columns, console=Console(file=self.stream), transient=True)
                self.task = self.bar.add_task("", total=None)
                self.bar.start()
            self.bar.update(self.task, description=f"{self.title}: {text}")
        else:
            self._print(f"{self.title}: {text}")

    def describe(self, lines: Sequence[str], scheme: Scheme | None) -> None:
        self.scheme, self.outside = scheme, set()
        for line in [self.title] if self.described else lines:  # runs of a comparison share all but their names
            self._print(line)
        self.described = True

    def start(self, config: TrainConfig, steps_per_epoch: int, progress: checkpoint.Progress) -> None:
        self.epochs, self.steps = config.recipe.epochs, steps_per_epoch
        self.crowding = Crowding()
        if progress.epoch >= self.epochs:
            self._print(f"{self.title}: done already, {config.out} holds all {self.epochs} epochs")
            return
        if progress.epoch or progress.step:
            self._print(f"{self.title}: going on from epoch {progress.epoch + 1}, step {progress.step}")
        if self.stream.isatty():
            self.note("the first step")
            if self.bar is not None:
                self.bar.update(self.task, total=self.epochs * self.steps, completed=self._steps_done(progress))

    def step(self, progress: checkpoint.Progress, images_per_second: float) -> None:
        if not progress.seen:
            return
        late = time.monotonic() - self.spoke_at > SECONDS_BETWEEN_LINES
        if self.bar is None and not late:
            return
        loss, error = progress.loss_sum / progress.seen, 100 * progress.wrong / progress.seen
        figures = f"loss {loss:.3f} error {error:.2f}% {images_per_second:.0f} images/s"
        if self.bar is not None:
            text = f"{self.title} {progress.epoch + 1}/{self.epochs} {figures}"
            self.bar.update(self.task, completed=self._steps_done(progress), description=text)
        else:
            self._print(f"epoch {progress.epoch + 1}/{self.epochs}, step {progress.step}/{self.steps}: {figures}")

    def _steps_done(self, progress: checkpoint.Progress) -> int:
        return progress.epoch * self.steps + progress.step

    def epoch(self, line: EpochMetrics) -> None:
        width = len(str(self.epochs))
        self._print(
            f"epoch {line['epoch'] + 1:{width}}/{self.epochs}  loss {line['loss']:.4f}  "
            f"error {line['error']:5.2f}%  test {line['test_error']:5.2f}%  lr {line['lr']:.3g}  "
            f"{line['images_per_second']:.0f} images/s"
        )
        self._tell_unstable(line)
        if self.crowding is not None and (told := self.crowding.told()):
            self._print(told)
        self.crowding = None  # once in a run

    def _tell_unstable(self, line: EpochMetrics) -> None:
        """Say when a k_n leaves the interval in which the scheme is zero-stable, or comes back."""
        if self.scheme is None:
            return
        values = {name: k if isinstance(k, list) else [k] for name, k in line["k"].items()}
        outside = {name for name, ks in values.items() if not all(map(self.scheme.zero_stable_at, ks))}
        for name in sorted(outside - self.outside):
            worst, interval = outermost(values[name], self.scheme), self.scheme.stable_range
            self._print(f"  k of {name} is {worst:+.3f}, outside {interval}: not zero-stable there")
        for name in sorted(self.outside - outside):
            self._print(f"  k of {name} is inside {self.scheme.stable_range} again")
        self.outside = outside

    def close(self) -> None:
        """Take the bar off the screen, whatever ended the run."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _print(self, text: str) -> None:
        if self.quiet:
            return
        text = for_terminal(text)
        self.spoke_at = time.monotonic()
        if self.bar is not None:
            self.bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
            return
        try:
            print(text, file=self.stream, flush=True)
        except OSError:  # a full disk, or a reader that has seen enough: training goes on
            self.quiet = True
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
