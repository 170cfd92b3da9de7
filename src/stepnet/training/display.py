"""The progress of a run: a bar on a terminal and in a notebook, lines at intervals elsewhere."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from stepnet.errors import counted
from stepnet.escaping import for_terminal
from stepnet.nets import outermost
from stepnet.schemes import Scheme
from stepnet.training import checkpoint
from stepnet.training.callbacks import Callback
from stepnet.training.describe import run_summary
from stepnet.training.levels import Level
from stepnet.training.machine import Crowding
from stepnet.training.notebook import NotebookBar, duration, in_notebook
from stepnet.training.run import EpochMetrics
from stepnet.training.scores import SEEN, figures_of
from stepnet.training.trainer import Trainer
from stepnet.training.trial import estimate_step

SECONDS_BETWEEN_LINES = 30.0  # within an epoch, where there is no terminal
LONG_EPOCH = 60.0  # seconds; the duration of a longer epoch is printed as soon as it is known


class TerminalBar:
    """A progress bar of rich, removed from the screen when it is closed."""

    def __init__(self, stream: TextIO) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=Console(file=stream), transient=True)
        self.task = self.progress.add_task("", total=None)
        self.progress.start()

    def update(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Show a text, and the progress if it is known."""
        self.progress.update(self.task, description=text, completed=done, total=total)

    def print(self, text: str) -> None:
        """Write a line above the bar."""
        self.progress.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the bar from the screen."""
        self.progress.stop()


class Display(Callback):
    """Print a summary of the run, then its loss, metric, speed and time left, in lines of at most 80 columns."""

    def __init__(self, title: str = "", stream: TextIO | None = None) -> None:
        self.title = title
        self.stream = stream or sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115  (stdout is closed)
        self.bar: TerminalBar | NotebookBar | None = None
        self.quiet = int(os.environ.get("RANK", 0)) > 0  # only the first process prints
        self.printed_at = time.monotonic()
        self.scheme: Scheme | None = None
        self.outside: set[str] = set()
        self.described = False
        self.level: Level | None = None
        self.began = time.monotonic(), 0  # time, and number of steps done
        self.timed = False  # whether the duration of an epoch is known
        self.crowding: Crowding | None = None

    def titled(self, title: str) -> Display:
        """Use this display for the next run, under another title."""
        self.close()
        self.title = title
        return self

    def note(self, text: str) -> None:
        """Show the current activity, next to the bar if there is one."""
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
        if not deeper:  # the next level was announced already; runs of a comparison differ only in their titles
            for line in [self.title] if self.described else run_summary(trainer):
                self._print(line)
        self.level = None if trainer.level is None or trainer.level.full else trainer.level
        self.described = True
        self.epochs, self.steps, progress = trainer.recipe.epochs, len(trainer.batches), trainer.progress
        self.crowding, self.timed = Crowding(), False
        if trainer.is_complete:
            epochs = counted(progress.epoch, "epoch")
            self._print(f"{self.title}: already finished ({epochs}), see {trainer.run.folder}")
            return
        if (progress.epoch or progress.step) and not trainer.is_done and not deeper:
            self._print(f"{self.title}: resuming at epoch {progress.epoch + 1}, step {progress.step}")
        self._print_estimate(trainer)
        self.began = time.monotonic(), self._steps_done(progress)
        self._begin_bar()
        if self.bar is not None:
            text = f"{self.title}: the first step"
            self.bar.update(text, self._steps_done(progress), self.epochs * self.steps)

    def step(self, trainer: Trainer) -> None:
        progress, task = trainer.progress, trainer.task.record
        if not progress.seen:
            return
        self._print_duration(trainer)
        late = time.monotonic() - self.printed_at > SECONDS_BETWEEN_LINES
        if self.bar is None and not late:
            return
        metric, values = task.metric, figures_of(trainer.task, {**progress.sums, SEEN: progress.seen})
        score = f" {metric} {metric.show(values[metric.name])}" if metric.name in values.keys() - {"loss"} else ""
        figures = f"loss {values['loss']:.3f}{score} {trainer.scores.per_second:.0f} {task.items}/s"
        if self.bar is not None:
            left = "" if isinstance(self.bar, TerminalBar) else self._time_left(progress)  # rich has a column for it
            text = f"{self.title} {progress.epoch + 1}/{self.epochs} {figures}{left}"
            self.bar.update(text, self._steps_done(progress), self.epochs * self.steps)
        else:
            place = f"epoch {progress.epoch + 1}/{self.epochs}, step {progress.step}/{self.steps}"
            self._print(f"{place}: {figures}{self._time_left(progress)}")

    def _print_estimate(self, trainer: Trainer) -> None:
        """Print about how long an epoch of a slow run takes, before its first step ends."""
        if self.quiet or trainer.is_done or (step := estimate_step(trainer)) is None:
            return
        if step * self.steps > LONG_EPOCH:
            self._print(f"time    about {_step_time(step)}, {duration(step * self.steps)} an epoch (estimated)")

    def _print_duration(self, trainer: Trainer) -> None:
        """Print once how long a slow run will take, from the speed measured after its first step, which is slower."""
        if self.timed or trainer.scores.readings < 2:
            return
        self.timed = True
        epoch = min(len(trainer.data.train), self.steps * trainer.recipe.batch_size) / trainer.scores.per_second
        if epoch > LONG_EPOCH:
            whole = duration(epoch * (self.epochs - trainer.progress.epoch))
            self._print(f"time    {_step_time(epoch / self.steps)}, {duration(epoch)} an epoch, {whole} in all")

    def _steps_done(self, progress: checkpoint.Progress) -> int:
        return progress.epoch * self.steps + progress.step

    def _time_left(self, progress: checkpoint.Progress) -> str:
        """Return `, 12 min left`, extrapolated from the steps so far."""
        (at, first), done = self.began, self._steps_done(progress)
        seconds = (time.monotonic() - at) / max(done - first, 1)
        return f", {duration(seconds * (self.epochs * self.steps - done))} left"

    def epoch(self, trainer: Trainer, line: EpochMetrics) -> None:
        width, task, metric = len(str(self.epochs)), trainer.task.record, trainer.task.record.metric
        score = f"{metric} {metric.show(line[metric.name]):>6}  " if metric.name in line.keys() - {"loss"} else ""
        tested = "val" if f"val_{metric.name}" in line else "test"
        self._print(
            f"epoch {line['epoch'] + 1:{width}}/{self.epochs}  loss {line['loss']:.4f}  {score}"
            f"{tested} {metric.show(task.choice(line)):>6}  lr {line['lr']:.3g}  "
            f"{line[task.speed]:.0f} {task.items}/s"
        )
        self._report_unstable(line)
        if self.crowding is not None and (warning := self.crowding.warning()):
            self._print(warning)
        self.crowding = None  # once in a run

    def _report_unstable(self, line: EpochMetrics) -> None:
        """Print when a k_n leaves the interval in which the scheme is zero-stable, or returns to it."""
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
        """Remove the bar from the screen."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _print(self, text: str) -> None:
        if self.quiet:
            return
        text = for_terminal(text)
        self.printed_at = time.monotonic()
        if self.bar is not None:
            self.bar.print(text)
            return
        try:
            print(text, file=self.stream, flush=True)
        except OSError:  # a full disk or a closed pipe must not stop the training
            self.quiet = True
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())


def _step_time(seconds: float) -> str:
    return f"{f'{seconds:.2g} s' if seconds < 10 else duration(seconds)} a step"
