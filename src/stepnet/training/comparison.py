"""`stepnet compare`: several models, the same data order, the same initial weights where shapes agree."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepnet.exchange.model_files import description_of, load
from stepnet.nets.profile import Profile, profile
from stepnet.training.config import Label, TrainConfig, file_name, read_label, write_label
from stepnet.training.loop import Watcher, train_config
from stepnet.training.paired import PairedDifferences
from stepnet.training.run import Run


@dataclass(frozen=True)
class Comparison:
    """All runs of one model, a seed each: errors in per cent of the test set."""

    model: str
    parameters: int
    multiply_adds: int  # of the forward pass of one image
    runs: tuple[Run, ...]
    seeds: tuple[int, ...]
    last: tuple[float, ...]
    best: tuple[float, ...]
    top5: tuple[float, ...]  # after the last epoch; empty below six classes
    seconds: tuple[float, ...]  # of an epoch, the median: training alone

    def difference(self, other: Comparison) -> PairedDifferences:
        """The last errors of this model minus those of another, seed by seed."""
        own, theirs = (dict(zip(c.seeds, c.last, strict=True)) for c in (self, other))
        return PairedDifferences.of(own, theirs)


def compare(
    models: Sequence[str],
    base: TrainConfig,
    seeds: int,
    out: Path,
    watcher: Callable[[str], Watcher] = lambda title: Watcher(),
) -> list[Comparison]:
    """Train each model, a label `NAME[:SCHEME][,OPTION=VALUE…]`, with each seed.

    Seeds come first, so that an interrupted comparison is even. Every model starts, where names and shapes agree, from
    the weights of the first one.
    """
    labels = {model: _completed(read_label(model), base) for model in models}
    first = write_label(labels[models[0]])
    runs: dict[str, list[Run]] = {model: [] for model in models}
    for seed in range(base.seed, base.seed + seeds):
        for model, label in labels.items():
            config = dataclasses.replace(
                base,
                model=label.model,
                scheme=label.scheme,
                model_kwargs=label.kwargs,
                seed=seed,
                start_like=first,
                out=str(out / f"{file_name(model)}-seed{seed}"),
            )
            runs[model].append(train_config(config, watcher=watcher(f"{model} seed {seed}")))
    return [_summary(model, runs[model]) for model in models]


def _completed(label: Label, base: TrainConfig) -> Label:
    """The label with the scheme and the options that hold for all models."""
    return Label(label.model, label.scheme or base.scheme, base.model_kwargs | label.kwargs)


def network_cost(folder: Path) -> Profile:
    """What the network that a run has written costs: its parameters alone, if it does not say what images it takes."""
    network = load(folder)
    how = description_of(network).preprocessing
    if how is None:
        return Profile(sum(p.numel() for p in network.parameters()), 0, 0)
    return profile(network.to("meta"), how.channels, how.image_size)


def mean_and_deviation(values: Sequence[float]) -> str:
    """`8.33 ± 0.12`, the sample's standard deviation; one value alone has none."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def _summary(model: str, runs: Sequence[Run]) -> Comparison:
    cost = network_cost(runs[0].folder)
    lines = [run.finished() for run in runs]
    return Comparison(
        model,
        cost.parameters,
        cost.multiply_adds,
        tuple(runs),
        tuple(run.config.seed for run in runs),
        last=tuple(epochs[-1]["test_error"] for epochs in lines),
        best=tuple(min(line["test_error"] for line in epochs) for epochs in lines),
        top5=tuple(epochs[-1]["test_top5_error"] for epochs in lines if "test_top5_error" in epochs[-1]),
        seconds=tuple(statistics.median(line["seconds"] for line in epochs) for epochs in lines),
    )
