"""What finished epochs tell: one history for each run, the seeds of one network together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from stepnet.errors import UserError
from stepnet.exchange.model_description import description_of
from stepnet.exchange.model_files import load
from stepnet.nets.model_registry import MODELS
from stepnet.nets.profile import Profile, profile
from stepnet.training.config import TrainConfig
from stepnet.training.paired import PairedDifferences
from stepnet.training.run import Environment, EpochMetrics, Run

KByLayer = dict[str, float]  # k_n by the name of its layer; the mean where there is one for each channel


@dataclass(frozen=True)
class RunHistory:
    """One run: what was asked for, and its epochs so far. A figure that is no number is NaN."""

    folder: Path
    config: TrainConfig
    epochs: tuple[EpochMetrics, ...]
    environment: Environment

    @classmethod
    def read(cls, folder: Path) -> RunHistory:
        """From a run's folder; another folder is refused in one line."""
        run = Run(folder)
        if folder.is_dir() and not run.config_file.exists() and any(folder.glob("*/config.yaml")):
            raise UserError(f"{folder} is not a run but a folder of runs: name them, as in {folder}/*")
        config = run.config
        return cls(folder, config, tuple(run.metrics()), run.recorded_environment())

    def series(self, name: str) -> list[float]:
        """A figure of every epoch."""
        return [cast(float, line.get(name, math.nan)) for line in self.epochs]

    @property
    def complete(self) -> bool:
        """Whether it took all its epochs."""
        return len(self.epochs) >= self.config.recipe.epochs

    @property
    def broken_epochs(self) -> list[int]:
        """The epochs, from 1, with a loss or an error that is no finite number."""
        names = ("loss", "error", "test_loss", "test_error")
        rows = enumerate(zip(*map(self.series, names), strict=True), 1)
        return [n for n, row in rows if not all(map(math.isfinite, row))]

    def last(self, name: str) -> float:
        """A figure of the last epoch so far; NaN where the run did not measure it."""
        return self.series(name)[-1] if self.epochs else math.nan

    @property
    def last_error(self) -> float:
        """The test error after the last epoch so far, in per cent."""
        return self.last("test_error")

    @property
    def best_error(self) -> float:
        """The smallest test error: chosen on the test set."""
        return min((e for e in self.series("test_error") if math.isfinite(e)), default=math.nan)

    def median(self, name: str) -> float:
        """A figure of the median epoch; NaN where the run did not measure it."""
        known = [value for value in self.series(name) if math.isfinite(value)]
        return statistics.median(known) if known else math.nan

    @cached_property
    def coefficients(self) -> list[KByLayer]:
        """`k_n` after each epoch; empty for a scheme that learns none."""
        return [{layer: mean_coefficient(k) for layer, k in line["k"].items()} for line in self.epochs]


@dataclass(frozen=True)
class NetworkRuns:
    """The runs of one network under one recipe, which differ in their seeds."""

    label: str
    runs: tuple[RunHistory, ...]

    @property
    def config(self) -> TrainConfig:
        """Of any of its runs, but for the seed."""
        return self.runs[0].config

    @property
    def scheme(self) -> str | None:
        """The scheme that marches the blocks; None for a network that no name of ours builds, and was not converted."""
        if self.config.scheme is not None or self.config.model not in MODELS:
            return self.config.scheme
        return MODELS[self.config.model].scheme

    @cached_property
    def cost(self) -> Profile | None:
        """Parameters and multiply-adds, as a run's own file says; None where it has none, or cannot be built here."""
        try:
            return _cost((self.counted or self.runs)[0].folder)
        except UserError:
            return None

    @property
    def counted(self) -> tuple[RunHistory, ...]:
        """The runs whose last epoch may be compared: the complete ones, if there are any."""
        return tuple(run for run in self.runs if run.complete) or tuple(run for run in self.runs if run.epochs)

    def values(self, of: Callable[[RunHistory], float]) -> list[float]:
        """A figure of every run that counts, where it is one."""
        return [value for value in map(of, self.counted) if math.isfinite(value)]

    @property
    def errors(self) -> list[float]:
        """The test errors of its runs after their last epochs."""
        return self.values(lambda run: run.last_error)

    def difference(self, other: NetworkRuns) -> PairedDifferences:
        """The last test errors of this network minus those of another, over the seeds that both have complete."""
        own, theirs = ({run.config.seed: run.last_error for run in group.counted} for group in (self, other))
        return PairedDifferences.of(own, theirs)


def mean_and_deviation(values: Sequence[float]) -> str:
    """`8.33 ± 0.12`, the sample's standard deviation; one value alone has none."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def mean_coefficient(k: float | list[float]) -> float:
    """One figure for a layer: its `k`, or the mean of those of its channels."""
    return statistics.fmean(k or [math.nan]) if isinstance(k, list) else k


def _cost(folder: Path) -> Profile:
    """What the network that a run has written costs: its parameters alone, if it does not say what images it takes."""
    network = load(folder)
    how = description_of(network).preprocessing
    if how is None:
        return Profile(sum(p.numel() for p in network.parameters()), 0, 0)
    return profile(network.to("meta"), how.channels, how.image_size)
