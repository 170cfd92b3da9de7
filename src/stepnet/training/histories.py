"""Metrics of finished epochs: one history for each run, the runs of a network, and differences seed by seed."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

from stepnet.errors import UserError
from stepnet.files import atomic_file, read_file
from stepnet.schema import LARGEST, read_json
from stepnet.schemes import layer_and_name
from stepnet.training.config import NetworkRecord, TrainConfig
from stepnet.training.run import Environment, EpochMetrics, Run
from stepnet.training.tasks import TaskRecord

MOST_CONFUSED = 3  # wrong predictions that are named for a class
KByLayer = dict[str, float]  # k_n by the name of its layer; the mean over channels if there are several
Records = Mapping[int, Mapping[str, Any]]  # measurements by seed


@dataclass(frozen=True)
class Mistake:
    """A test image with its label, and the class that the network predicts with which probability."""

    image: str  # its file, or its number in the test set
    label: str
    prediction: str
    probability: float


@dataclass(frozen=True)
class ClassErrors:
    """The errors of a network by class, which `stepnet evaluate RUN --classes` writes into the run's folder."""

    epochs: int
    classes: tuple[str, ...]
    errors: tuple[float | None, ...]  # in per cent; None for a class without test images
    confusion: tuple[tuple[int, ...], ...]  # images of the class of the row, by predicted class
    mistakes: tuple[Mistake, ...]  # the most confident first
    pictures: tuple[str, ...]  # of the mistakes: small PNG files in base64

    @classmethod
    def read(cls, run: Run) -> ClassErrors | None:
        """Read them from a run's folder; None if they were not written."""
        file = run.class_errors_file
        return read_json(cls, read_file(file, LARGEST), f"{file} is damaged") if file.exists() else None

    def rows(self, missing: str = "") -> list[list[str]]:
        """Return for each class its name, images, error in per cent and most frequent wrong predictions, `cat (3)`."""
        rows = []
        for label, error, counts in zip(self.classes, self.errors, self.confusion, strict=False):
            wrong = sorted(((-n, c) for c, n in enumerate(counts) if n and self.classes[c] != label))
            predicted = ", ".join(f"{self.classes[c]} ({-n})" for n, c in wrong[:MOST_CONFUSED])
            shown = missing if error is None else f"{error:.2f}"
            rows.append([label, f"{sum(counts):,}", shown, predicted or missing])
        return rows

    def write(self, run: Run) -> None:
        """Write them into a run's folder, for its report."""
        with atomic_file(run.class_errors_file) as partial:
            partial.write_text(json.dumps(asdict(self)))


@dataclass(frozen=True)
class RunHistory:
    """A run: its config and its epochs so far. A metric that was not measured is NaN."""

    folder: Path
    config: TrainConfig
    epochs: tuple[EpochMetrics, ...]
    environment: Environment

    @classmethod
    def read(cls, folder: Path) -> RunHistory:
        """Read a run's folder."""
        run = Run(folder)
        if folder.is_dir() and not run.config_file.exists() and any(folder.glob("*/config.yaml")):
            raise UserError(f"{folder} is not a run but a folder of runs: name them, as in {folder}/*")
        config = run.config
        epochs = run.metrics() if run.environment_file.exists() else run.finished()
        return cls(folder, config, tuple(epochs), run.recorded_environment())

    @property
    def class_errors(self) -> ClassErrors | None:
        """The errors by class after the last epoch, if the run was evaluated since."""
        errors = ClassErrors.read(Run(self.folder))
        return errors if errors and errors.epochs == len(self.epochs) else None

    def series(self, name: str) -> list[float]:
        """Return a metric of every epoch."""
        return [cast(float, line.get(name, math.nan)) for line in self.epochs]

    @property
    def elapsed(self) -> list[float]:
        """Seconds of training up to the end of each epoch."""
        return list(accumulate(self.series("seconds")))

    @property
    def task(self) -> TaskRecord:
        """The task, which names the metrics."""
        return self.config.task or TaskRecord()

    @property
    def complete(self) -> bool:
        """Whether the run finished all its epochs, or was stopped by a callback."""
        return len(self.epochs) >= self.config.recipe.epochs or bool(self.epochs and self.epochs[-1].get("stopped"))

    @property
    def broken_epochs(self) -> list[int]:
        """The epochs, from 1, with a loss or a metric that is not finite."""
        names = ("loss", "test_loss", f"test_{self.task.metric.name}")
        rows = enumerate(zip(*map(self.series, names), strict=True), 1)
        return [n for n, row in rows if not all(map(math.isfinite, row))]

    def last(self, name: str) -> float:
        """Return a metric of the last epoch so far; NaN if the run did not measure it."""
        return self.series(name)[-1] if self.epochs else math.nan

    @property
    def last_score(self) -> float:
        """The task's first metric on the test set after the last epoch so far: for classification, the error in %."""
        return self.last(f"test_{self.task.metric.name}")

    @property
    def best_score(self) -> float:
        """The metric on the test set after the best epoch, chosen on the validation set if there is one."""
        known = [line for line in self.epochs if math.isfinite(self.task.choice(line))]
        if not known:
            return math.nan
        return float(known[self.task.best_epoch(known)][f"test_{self.task.metric.name}"])

    @property
    def has_validation(self) -> bool:
        """Whether the best epoch was chosen on a validation set."""
        return bool(self.epochs) and f"val_{self.task.metric.name}" in self.epochs[-1]

    def median(self, name: str) -> float:
        """Return the median of a metric over the epochs; NaN if the run did not measure it."""
        known = [value for value in self.series(name) if math.isfinite(value)]
        return statistics.median(known) if known else math.nan

    @cached_property
    def coefficients(self) -> list[KByLayer]:
        """`k_n` after each epoch, as `single_numbers`; empty if the scheme learns none."""
        return [single_numbers(line["k"]) for line in self.epochs]


@dataclass(frozen=True)
class NetworkRuns:
    """The runs of one network with one recipe and several seeds."""

    label: str
    runs: tuple[RunHistory, ...]

    @property
    def config(self) -> TrainConfig:
        """The config of the first run; the others differ in the seed."""
        return self.runs[0].config

    @property
    def task(self) -> TaskRecord:
        """The task, which names the metrics."""
        return self.runs[0].task

    @property
    def scheme(self) -> str | None:
        """The scheme that steps the blocks; None for a foreign network that was not converted."""
        if self.config.network is not None:
            return self.config.scheme or self.config.network.scheme
        from stepnet.nets import MODELS

        return self.config.scheme or (MODELS[self.config.model].scheme if self.config.model in MODELS else None)

    @cached_property
    def cost(self) -> NetworkRecord | None:
        """Parameters and multiply-adds, from the config; for an older run, counted on its network if possible."""
        chosen = (self.counted or self.runs)[0]
        if chosen.config.network is not None:
            return chosen.config.network
        try:
            return _cost(chosen.folder)
        except UserError:
            return None

    @property
    def counted(self) -> tuple[RunHistory, ...]:
        """The runs to compare: the complete ones, or all if none is complete."""
        return tuple(run for run in self.runs if run.complete) or tuple(run for run in self.runs if run.epochs)

    def values(self, of: Callable[[RunHistory], float]) -> list[float]:
        """Return a figure of every run to compare, without those that are not finite."""
        return [value for value in map(of, self.counted) if math.isfinite(value)]

    @property
    def scores(self) -> list[float]:
        """The task's first metric on the test set after the last epoch, for each run."""
        return self.values(lambda run: run.last_score)

    def difference(self, other: NetworkRuns) -> PairedDifferences:
        """Subtract the last scores of another network, seed by seed."""
        ours, theirs = ({run.config.seed: run.last_score for run in group.counted} for group in (self, other))
        return PairedDifferences.of(ours, theirs)


def mean_and_deviation(values: Sequence[float], digits: int = 2) -> str:
    """Format `8.33 ± 0.12` with the sample's standard deviation; a single value has none."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def single_numbers(ks: Mapping[str, float | list[float]]) -> KByLayer:
    """Return coefficients by layer as numbers to plot: the mean of a `k` over channels, each entry of another array.

    `blocks.1:V`, listed row by row, becomes `blocks.1:V[1]`, `blocks.1:V[2]`, ….
    """
    numbers: KByLayer = {}
    for name, k in ks.items():
        if not isinstance(k, list):
            numbers[name] = k
        elif layer_and_name(name)[1] != "k":
            numbers |= {f"{name}[{n + 1}]": value for n, value in enumerate(k)}
        else:
            numbers[name] = statistics.fmean(k or [math.nan])
    return numbers


def _cost(folder: Path) -> NetworkRecord:
    """Count the cost of a run's network; only its parameters if its input size is not known."""
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
    """Figures of one network minus those of another, for each seed that both have.

    Both start from the same initial weights and see the same batches, which makes the differences less variable.
    """

    by_seed: dict[int, float]

    @classmethod
    def of(cls, one: Mapping[int, float], other: Mapping[int, float]) -> PairedDifferences:
        """Subtract the figures by seed; pairs whose difference is not finite are left out."""
        gaps = {seed: one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())}
        return cls({seed: gap for seed, gap in gaps.items() if math.isfinite(gap)})

    @classmethod
    def between(cls, one: Records, other: Records, figure: str) -> PairedDifferences:
        """Subtract a figure of the records of one network and of another."""
        return cls.of(*({seed: record[figure] for seed, record in records.items()} for records in (one, other)))

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
        """Return the half width for one of several comparisons, by Bonferroni's correction: 5 % for all of them."""
        from scipy import stats  # slow to import

        level = 1 - 0.025 / comparisons
        return float(stats.t.ppf(level, len(self) - 1)) * self.standard_error if len(self) > 1 else math.nan

    def side_of(self, threshold: float = 0.0, comparisons: int = 1) -> int:
        """Return -1 if the interval lies below the threshold, 1 if it lies above it, else 0: inconclusive."""
        half = self.half_width_among(comparisons)
        return (self.mean - half > threshold) - (self.mean + half < threshold)

    @property
    def p_value(self) -> float:
        """The p-value of Student's two-sided test that the mean difference is 0; NaN below two pairs."""
        from scipy import stats

        if len(self) < 2:
            return math.nan
        if self.standard_error == 0:
            return float(self.mean == 0)
        return float(2 * stats.t.sf(abs(self.mean) / self.standard_error, len(self) - 1))

    @property
    def signs(self) -> tuple[int, int]:
        """The numbers of pairs in which the first figure is smaller, and larger."""
        gaps = self.by_seed.values()
        return sum(gap < 0 for gap in gaps), sum(gap > 0 for gap in gaps)

    def __str__(self) -> str:
        return self.show()

    def show(self, digits: int = 2) -> str:
        """Format the mean, its interval and the number of pairs: `-0.16 ± 0.20 (100 pairs)`."""
        pairs = f" ({len(self)} pairs)" if len(self) > 1 else ""
        return f"{self.interval(digits)}{pairs}" if self.by_seed else ""

    def interval(self, digits: int = 2) -> str:
        """Format the mean and the half width of its 95 % interval: `-0.16 ± 0.20`."""
        return f"{self.mean:+.{digits}f}" + (f" ± {self.half_width:.{digits}f}" if len(self) > 1 else "")


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of several comparisons: the chance that any falls below 0.05 without an effect is 5 %.

    In ascending order the j-th of n is multiplied by n - j + 1, and is at least the one before it (Holm 1979). NaN, for
    a comparison with too few pairs, stays NaN and is not counted in n.
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    corrected, largest = [math.nan] * len(p_values), 0.0
    for j, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - j) * p))
        corrected[place] = largest
    return corrected
