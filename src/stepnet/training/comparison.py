"""`stepnet compare`: several models, the same data order, the same initial weights where shapes agree."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen

from stepnet.arguments import Count, checked
from stepnet.training.build import build_network
from stepnet.training.callbacks import Callback
from stepnet.training.config import Label, TrainConfig, file_name, read_label, write_label
from stepnet.training.histories import NetworkRuns, RunHistory
from stepnet.training.imports import import_modules
from stepnet.training.loop import train_config


@checked
def compare(
    models: Annotated[Sequence[str], MinLen(1)],
    base: TrainConfig,
    seeds: Count,
    out: str | os.PathLike[str],
    callback: Callable[[str], Callback] = lambda title: Callback(),
    *,
    overwrite: bool = False,
) -> list[NetworkRuns]:
    """Train each model, a label `NAME[:SCHEME][,OPTION=VALUE…]`, with each seed.

    Seeds come first, so that an interrupted comparison is even. Every model starts, where names and shapes agree, from
    the weights of the first one.
    """
    import_modules(base.imports)
    data = base.read_data()
    configs = list(comparison_configs(models, base, seeds, Path(out)))
    for _, config in configs[1 : len(models)]:  # one that cannot be built raises before the others are trained
        build_network(replace(config, pretrained=False, weights=None, start_like=None), data)
    runs: dict[str, list[RunHistory]] = {model: [] for model in models}
    for model, config in configs:
        callbacks = [callback(f"{model} seed {config.seed}")]
        run = train_config(config, callbacks=callbacks, overwrite=overwrite, data=data)
        runs[model].append(RunHistory.read(run.folder))
    return [NetworkRuns(model, tuple(runs[model])) for model in models]


def comparison_configs(
    models: Sequence[str], base: TrainConfig, seeds: int, out: Path, start: str | None = None
) -> Iterator[tuple[str, TrainConfig]]:
    """Yield each model with the config of its run, seed by seed; all start from the weights of `start` where they fit.

    `start` is a label, by default that of the first model.
    """
    start_like = write_label(_completed(read_label(start or models[0]), base))
    for seed in range(base.seed, base.seed + seeds):
        for model in models:
            name, scheme, kwargs = _completed(read_label(model), base)
            config = replace(base, model=name, scheme=scheme, model_kwargs=kwargs, seed=seed, start_like=start_like)
            yield model, replace(config, out=str(run_folder(out, model, seed)))


def run_folder(out: Path, model: str, seed: int) -> Path:
    """Return the folder of one run of a comparison."""
    return out / f"{file_name(model)}-seed{seed}"


def _completed(label: Label, base: TrainConfig) -> Label:
    """Return the label with the scheme and the options that all models share."""
    return Label(label.model, label.scheme or base.scheme, base.model_kwargs | label.kwargs)
