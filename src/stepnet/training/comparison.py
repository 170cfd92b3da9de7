"""`stepnet compare`: several models, the same data order, the same initial weights where shapes agree."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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
from stepnet.training.run import Run


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
    labels = {model: _completed(read_label(model), base) for model in models}
    first = write_label(labels[models[0]])
    runs: dict[str, list[Run]] = {model: [] for model in models}

    def config(model: str, seed: int) -> TrainConfig:
        name, scheme, kwargs = labels[model]
        folder = str(Path(out) / f"{file_name(model)}-seed{seed}")
        return replace(base, model=name, scheme=scheme, model_kwargs=kwargs, seed=seed, start_like=first, out=folder)

    import_modules(base.imports)
    data = base.read_data()
    for model in models[1:]:  # one that cannot be built is refused before the others are trained
        build_network(replace(config(model, base.seed), pretrained=False, weights=None, start_like=None), data)
    for seed in range(base.seed, base.seed + seeds):
        for model in models:
            callbacks = [callback(f"{model} seed {seed}")]
            runs[model].append(train_config(config(model, seed), callbacks=callbacks, overwrite=overwrite, data=data))
    return [NetworkRuns(model, tuple(RunHistory.read(run.folder) for run in runs[model])) for model in models]


def _completed(label: Label, base: TrainConfig) -> Label:
    """The label with the scheme and the options that hold for all models."""
    return Label(label.model, label.scheme or base.scheme, base.model_kwargs | label.kwargs)
