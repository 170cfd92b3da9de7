"""What a person sees of a run: a progress bar on a terminal and in a notebook, lines now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from stepnet.escaping import for_terminal
from stepnet.nets import outermost
from stepnet.schemes import Scheme
from stepnet.training import checkpoint
from stepnet.training.callbacks import Callback
from stepnet.training.levels import Level
from stepnet.training.machine import Crowding
from stepnet.training.notebook import NotebookBar, duration, in_notebook
from stepnet.training.run import EpochMetrics
from stepnet.training.scores import SEEN, figures_of
from stepnet.training.trainer import Trainer

SECONDS_BETWEEN_LINES = 30.0  # within an epoch, where there is no terminal


class TerminalBar:
    """A bar that moves while something is under way; it is gone when that is done."""

    def __init__(self, stream: TextIO) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=Console(file=stream), transient=True)
        self.task = self.progress.add_task("", total=None)
        self.progress.start()

    def update(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Show a text, and how much of the whole is done where that is known."""
        self.progress.update(self.task, description=text, completed=done, total=total)

    def print(self, text: str) -> None:
        """Write a line above the bar."""
        self.progress.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Take the bar off the screen."""
        self.progress.stop()


class Display(Callback):
    """What the run is; then loss, metric, speed and the time left. No line has more than 80 columns of its own."""

    def __init__(self, title: str = "", stream: TextIO | None = None) -> None:
        self.title = title
        self.stream = stream or sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115  (closed: nobody looks)
        self.bar: TerminalBar | NotebookBar | None = None
        self.quiet = int(os.environ.get("RANK", 0)) > 0  # of many processes one speaks
        self.spoke_at = time.monotonic()
        self.scheme: Scheme | None = None
        self.outside: set[str] = set()
        self.described = False
        self.level: Level | None = None  # of the run that is under way
        self.began = time.monotonic(), 0  # when, and after how many steps
        self.crowding: Crowding | None = None

    def titled(self, title: str) -> Display:
        """The same display for the next run."""
        self.close()
        self.title = title
        return self

    def note(self, text: str) -> None:
        """What takes a while now: beside a moving bar where there is one, elsewhere a line."""
        if self.quiet:
            return
        self._begin_bar()
        if self.bar is not None:
            self.bar.update(f"{self.title}: {text}")
        else:
            self._print(f"{self.title}: {text}")

    def message(self, text: str) -> None:
        self._print(text)

    def _begin_bar(self) -> None:
        if self.bar is not None or self.quiet:
            return
        if self.stream.isatty():
            self.bar = TerminalBar(self.stream)
        elif self.stream is sys.stdout and in_notebook():
            self.bar = NotebookBar()

    def start(self, trainer: Trainer) -> None:
        self.scheme, self.outside = trainer.scheme, set()
        deeper = trainer.level is not None and self.level is not None and trainer.level != self.level
        if not deeper:  # a level has said what it is; runs of a comparison share all but their titles
            for line in [self.title] if self.described else trainer.summary():
                self._print(line)
        self.level = None if trainer.level is None or trainer.level.full else trainer.level
        self.described = True
        self.epochs, self.steps, progress = trainer.recipe.epochs, len(trainer.batches), trainer.progress
        self.crowding = Crowding()
        if trainer.is_complete:
            self._print(f"{self.title}: already finished ({progress.epoch} epochs), see {trainer.run.folder}")
            return
        if (progress.epoch or progress.step) and not trainer.is_done and not deeper:
            self._print(f"{self.title}: resuming at epoch {progress.epoch + 1}, step {progress.step}")
        self.began = time.monotonic(), self._steps_done(progress)
        self._begin_bar()
        if self.bar is not None:
            text = f"{self.title}: the first step"
            self.bar.update(text, self._steps_done(progress), self.epochs * self.steps)

    def step(self, trainer: Trainer) -> None:
        progress, task = trainer.progress, trainer.task.record
        if not progress.seen:
            return
        late = time.monotonic() - self.spoke_at > SECONDS_BETWEEN_LINES
        if self.bar is None and not late:
            return
        found = figures_of(trainer.task, {**progress.sums, SEEN: progress.seen})
        own = "".join(f" {m} {m.show(found[m.name])}" for m in task.metrics[:1] if m.name in found.keys() - {"loss"})
        figures = f"loss {found['loss']:.3f}{own} {trainer.scores.per_second:.0f} {task.items}/s"
        if self.bar is not None:
            left = "" if isinstance(self.bar, TerminalBar) else self._time_left(progress)  # rich says it itself
            text = f"{self.title} {progress.epoch + 1}/{self.epochs} {figures}{left}"
            self.bar.update(text, self._steps_done(progress), self.epochs * self.steps)
        else:
            place = f"epoch {progress.epoch + 1}/{self.epochs}, step {progress.step}/{self.steps}"
            self._print(f"{place}: {figures}{self._time_left(progress)}")

    def _steps_done(self, progress: checkpoint.Progress) -> int:
        return progress.epoch * self.steps + progress.step

    def _time_left(self, progress: checkpoint.Progress) -> str:
        """`, 12 min left` of the whole run, at the pace so far."""
        (at, first), done = self.began, self._steps_done(progress)
        seconds = (time.monotonic() - at) / max(done - first, 1)
        return f", {duration(seconds * (self.epochs * self.steps - done))} left"

    def epoch(self, trainer: Trainer, line: EpochMetrics) -> None:
        width, task, metric = len(str(self.epochs)), trainer.task.record, trainer.task.record.metric
        own = f"{metric} {metric.show(line[metric.name]):>6}  " if metric.name in line.keys() - {"loss"} else ""
        tested = "val" if f"val_{metric.name}" in line else "test"  # with both, the test set waits for the end
        self._print(
            f"epoch {line['epoch'] + 1:{width}}/{self.epochs}  loss {line['loss']:.4f}  {own}"
            f"{tested} {metric.show(task.choice(line)):>6}  lr {line['lr']:.3g}  "
            f"{line[task.speed]:.0f} {task.items}/s"
        )
        self._tell_unstable(line)
        if self.crowding is not None and (warning := self.crowding.warning()):
            self._print(warning)
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
            self.bar.close()
            self.bar = None

    def _print(self, text: str) -> None:
        if self.quiet:
            return
        text = for_terminal(text)
        self.spoke_at = time.monotonic()
        if self.bar is not None:
            self.bar.print(text)
            return
        try:
            print(text, file=self.stream, flush=True)
        except OSError:  # a full disk, or a reader that has seen enough: training goes on
            self.quiet = True
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
