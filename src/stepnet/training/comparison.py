"""`stepnet compare`: several models, the same data order, the same initial weights where shapes agree."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepnet.exchange.files import load
from stepnet.training.config import TrainConfig, name_and_scheme
from stepnet.training.loop import Watcher, train
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
    """Train each model, a `NAME` or `NAME:SCHEME`, with each seed. Seeds come first: interrupted, it is even.

    Every model starts, where names and shapes agree, from the weights of the first one.
    """
    first = models[0]
    if base.scheme is not None and name_and_scheme(first)[1] is None:
        first = f"{first}:{base.scheme}"
    runs: dict[str, list[Run]] = {model: [] for model in models}
    for seed in range(base.seed, base.seed + seeds):
        for model in models:
            folder = out / f"{model.replace('/', '-').replace(':', '-')}-seed{seed}"
            name, scheme = name_and_scheme(model)
            config = dataclasses.replace(
                base, model=name, scheme=scheme or base.scheme, seed=seed, start_like=first, out=str(folder)
            )
            runs[model].append(train(config, watcher=watcher(f"{model} seed {seed}")))
    return [_summary(model, runs[model]) for model in models]


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
