"""What run folders tell: one history for each run, the seeds of one network together, data sets apart."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from stepnet.errors import UserError
from stepnet.nets.model_registry import MODELS
from stepnet.nets.profile import Profile
from stepnet.report.paper import CIFAR, IMAGENET, STOCHASTIC
from stepnet.training.comparison import network_cost
from stepnet.training.config import INCIDENTAL, TrainConfig
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

    @property
    def images_per_second(self) -> float:
        """The median epoch's."""
        speeds = [s for s in self.series("images_per_second") if math.isfinite(s)]
        return statistics.median(speeds) if speeds else math.nan

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
            return network_cost((self.counted or self.runs)[0].folder)
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

    @property
    def printed_error(self) -> float | None:
        """The paper's own figure for this network, data set and kind of training."""
        config = self.config
        strategy = "Original" if config.recipe.stochastic_depth is None else "Stochastic depth"
        for row in (*CIFAR, *STOCHASTIC, *IMAGENET):
            wanted = (row.name, row.dataset, row.strategy)
            if config.scheme is None and wanted == (config.model, config.data, strategy):
                return row.error
        return None


def paired_differences(one: NetworkRuns, other: NetworkRuns) -> PairedDifferences:
    """Of the last test errors, over the seeds that both have complete."""
    errors = [{run.config.seed: run.last_error for run in group.counted} for group in (one, other)]
    return PairedDifferences.of(errors[0], errors[1])


def read_histories(folders: Iterable[Path]) -> list[RunHistory]:
    """All runs in the order given, each once."""
    return [RunHistory.read(folder) for folder in {folder.resolve(): folder for folder in folders}.values()]


def by_data(histories: Sequence[RunHistory]) -> dict[str, list[NetworkRuns]]:
    """The networks of each data set: errors on different data are never set side by side.

    The first one, which the others are compared with, is a plain network (Euler's scheme) if there is any.
    """
    found: dict[str, list[RunHistory]] = {}
    for history in histories:
        found.setdefault(history.config.data, []).append(history)
    return {data: sorted(_networks(group), key=lambda n: n.scheme != "euler") for data, group in found.items()}


def _networks(histories: Sequence[RunHistory]) -> list[NetworkRuns]:
    groups: dict[str, list[RunHistory]] = {}
    for history in histories:
        groups.setdefault(repr(_without_seed(history.config)), []).append(history)
    names = [_name(group[0].config) for group in groups.values()]
    labels = []
    for name, group in zip(names, groups.values(), strict=True):
        alike = [other[0].config for n, other in zip(names, groups.values(), strict=True) if n == name]
        labels.append(name + _distinction(group[0].config, alike))
    return [NetworkRuns(label, tuple(group)) for label, group in zip(labels, groups.values(), strict=True)]


def _name(config: TrainConfig) -> str:
    return config.model if config.scheme is None else f"{config.model}:{config.scheme}"


def _distinction(config: TrainConfig, alike: Sequence[TrainConfig]) -> str:
    """What tells a network's runs from those of the same network under another config."""
    plain = _without_seed(config)
    fields = {d.split(" = ")[0] for other in alike for d in plain.differences(_without_seed(other))}
    values = dataclasses.asdict(config) | {f"recipe.{k}": v for k, v in dataclasses.asdict(config.recipe).items()}
    told = [f"{name.removeprefix('recipe.')}={values[name]}" for name in sorted(fields)]
    return f" ({', '.join(told)})" if told else ""


def _without_seed(config: TrainConfig) -> TrainConfig:
    fresh: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(TrainConfig) if f.name in INCIDENTAL}
    return dataclasses.replace(config, seed=0, **fresh)


def mean_coefficient(k: float | list[float]) -> float:
    """One figure for a layer: its `k`, or the mean of those of its channels."""
    return statistics.fmean(k or [math.nan]) if isinstance(k, list) else k
