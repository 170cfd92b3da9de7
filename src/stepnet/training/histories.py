"""What finished epochs tell: one history for each run, the seeds of one network together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import cast

from stepnet.errors import UserError
from stepnet.training.config import NetworkRecord, TrainConfig
from stepnet.training.run import Environment, EpochMetrics, Run
from stepnet.training.tasks import TaskRecord

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
    def elapsed(self) -> list[float]:
        """The seconds of training after each epoch: networks of several depths take unequal times for one."""
        return list(accumulate(self.series("seconds")))

    @property
    def task(self) -> TaskRecord:
        """What its figures are."""
        return self.config.task or TaskRecord()

    @property
    def complete(self) -> bool:
        """Whether it took all its epochs, or was stopped by a callback."""
        return len(self.epochs) >= self.config.recipe.epochs or bool(self.epochs and self.epochs[-1].get("stopped"))

    @property
    def broken_epochs(self) -> list[int]:
        """The epochs, from 1, with a loss or a metric that is no finite number."""
        names = ("loss", "test_loss", f"test_{self.task.metric.name}")
        rows = enumerate(zip(*map(self.series, names), strict=True), 1)
        return [n for n, row in rows if not all(map(math.isfinite, row))]

    def last(self, name: str) -> float:
        """A figure of the last epoch so far; NaN where the run did not measure it."""
        return self.series(name)[-1] if self.epochs else math.nan

    @property
    def last_score(self) -> float:
        """The task's first metric on the test set after the last epoch so far: of classification the error in %."""
        return self.last(f"test_{self.task.metric.name}")

    @property
    def best_score(self) -> float:
        """The metric on the test set after the best epoch, which is chosen on the validation set if there is one."""
        known = [line for line in self.epochs if math.isfinite(self.task.choice(line))]
        if not known:
            return math.nan
        chosen = [self.task.choice(line) for line in known]
        best = chosen.index(self.task.metric.best(chosen))
        return float(known[best][f"test_{self.task.metric.name}"])

    @property
    def has_validation(self) -> bool:
        """Whether the best epoch was chosen apart from the test set."""
        return bool(self.epochs) and f"val_{self.task.metric.name}" in self.epochs[-1]

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
    def task(self) -> TaskRecord:
        """What the figures of its runs are."""
        return self.runs[0].task

    @property
    def scheme(self) -> str | None:
        """The scheme that marches the blocks; None for a network that no name of ours builds, and was not converted."""
        if self.config.scheme is not None or self.config.network is not None:
            return self.config.scheme or (self.config.network.scheme if self.config.network else None)
        from stepnet.nets import MODELS

        return MODELS[self.config.model].scheme if self.config.model in MODELS else None

    @cached_property
    def cost(self) -> NetworkRecord | None:
        """Parameters and multiply-adds, as its config says; of an older run, as its network counts them, if it can."""
        chosen = (self.counted or self.runs)[0]
        if chosen.config.network is not None:
            return chosen.config.network
        try:
            return _cost(chosen.folder)
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
    def scores(self) -> list[float]:
        """The task's first metric on the test set, of its runs after their last epochs."""
        return self.values(lambda run: run.last_score)

    def difference(self, other: NetworkRuns) -> PairedDifferences:
        """The last scores of this network minus those of another, over the seeds that both have complete."""
        ours, theirs = ({run.config.seed: run.last_score for run in group.counted} for group in (self, other))
        return PairedDifferences.of(ours, theirs)


def mean_and_deviation(values: Sequence[float], digits: int = 2) -> str:
    """`8.33 ± 0.12`, the sample's standard deviation; one value alone has none."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def mean_coefficient(k: float | list[float]) -> float:
    """One figure for a layer: its `k`, or the mean of those of its channels."""
    return statistics.fmean(k or [math.nan]) if isinstance(k, list) else k


def _cost(folder: Path) -> NetworkRecord:
    """What the network that a run has written costs: its parameters alone, if it does not say what images it takes."""
    from stepnet.exchange import description_of, load
    from stepnet.nets import profile

    network = load(folder)
    how = description_of(network).preprocessing
    if how is None:
        return NetworkRecord(sum(p.numel() for p in network.parameters()))
    cost = profile(network.to("meta"), how.channels, how.image_size)
    return NetworkRecord(cost.parameters, cost.multiply_adds, cost.steps, cost.own_steps)


@dataclass(frozen=True)
class PairedDifferences:
    """Figures of one network minus those of another, one for each seed that both have.

    Both start from the same initial weights and see the same batches, so that only their difference varies.
    """

    by_seed: dict[int, float]

    @classmethod
    def of(cls, one: Mapping[int, float], other: Mapping[int, float]) -> PairedDifferences:
        """From the figure of each seed, for both; a pair with a figure that is no number does not count."""
        gaps = {seed: one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())}
        return cls({seed: gap for seed, gap in gaps.items() if math.isfinite(gap)})

    def __len__(self) -> int:
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        """`d`, the mean difference; NaN without a pair."""
        return statistics.fmean(self.by_seed.values()) if self.by_seed else math.nan

    @property
    def standard_error(self) -> float:
        """`s / sqrt(n)`; NaN below two pairs."""
        return statistics.stdev(self.by_seed.values()) / math.sqrt(len(self)) if len(self) > 1 else math.nan

    @property
    def half_width(self) -> float:
        """Half of Student's 95 % interval: `t_{0.975, n-1} s / sqrt(n)`; NaN below two pairs."""
        return self.half_width_among(1)

    def half_width_among(self, comparisons: int) -> float:
        """The same where so many comparisons are made at once, by Bonferroni's correction: 5 % for all of them."""
        from scipy import stats  # slow to import

        level = 1 - 0.025 / comparisons
        return float(stats.t.ppf(level, len(self) - 1)) * self.standard_error if len(self) > 1 else math.nan

    @property
    def p_value(self) -> float:
        """Of Student's two-sided test that the mean difference is 0; NaN below two pairs."""
        from scipy import stats

        if len(self) < 2:
            return math.nan
        if self.standard_error == 0:
            return float(self.mean == 0)
        return float(2 * stats.t.sf(abs(self.mean) / self.standard_error, len(self) - 1))

    @property
    def signs(self) -> tuple[int, int]:
        """In how many pairs the first figure is the smaller one, and in how many the larger."""
        gaps = self.by_seed.values()
        return sum(gap < 0 for gap in gaps), sum(gap > 0 for gap in gaps)

    def __str__(self) -> str:
        return self.show()

    def show(self, digits: int = 2) -> str:
        """`-0.16 ± 0.20 (100 pairs)`."""
        if len(self) < 2:
            return f"{self.mean:+.{digits}f}" if self.by_seed else ""
        return f"{self.mean:+.{digits}f} ± {self.half_width:.{digits}f} ({len(self)} pairs)"


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of comparisons made at once, corrected so that with 5 % at most any below 0.05 is there by chance.

    In rising order the j-th of n is multiplied by n - j + 1, and is at least the one before it (Holm 1979). NaN, where
    a comparison has too few pairs, stays NaN and does not count.
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    corrected, largest = [math.nan] * len(p_values), 0.0
    for j, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - j) * p))
        corrected[place] = largest
    return corrected
