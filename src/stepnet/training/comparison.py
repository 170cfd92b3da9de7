"""`stepnet compare`: several models, the same data order, the same initial weights where shapes agree."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepnet.exchange.files import load
from stepnet.training.config import Label, TrainConfig, file_name, read_label, write_label
from stepnet.training.loop import Watcher, train_config
from stepnet.training.run import Run


@dataclass(frozen=True)
class Comparison:
    """All runs of one model, a seed each, in per cent of the test set."""

    model: str
    parameters: int
    runs: tuple[Run, ...]
    last: tuple[float, ...]
    best: tuple[float, ...]


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


def mean_and_deviation(values: Sequence[float]) -> str:
    """`8.33 ± 0.12`, the sample's standard deviation; one value alone has none."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def _summary(model: str, runs: Sequence[Run]) -> Comparison:
    network = load(runs[0].folder)
    errors = [[line["test_error"] for line in run.finished()] for run in runs]
    return Comparison(
        model,
        sum(p.numel() for p in network.parameters()),
        tuple(runs),
        last=tuple(e[-1] for e in errors),
        best=tuple(min(e) for e in errors),
    )
