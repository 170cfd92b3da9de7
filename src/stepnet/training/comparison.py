"""Several runs: `stepnet compare`, networks trained alike; `stepnet transfer`, depths and learning rates."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen

from stepnet.arguments import Count, checked
from stepnet.errors import UserError
from stepnet.nets import depths_at, on_meta
from stepnet.training.build import build_network
from stepnet.training.callbacks import Callback
from stepnet.training.config import Label, TrainConfig, file_name, read_label, write_label
from stepnet.training.histories import NetworkRuns, RunHistory
from stepnet.training.loop import train_config
from stepnet.training.recipes import DepthRule
from stepnet.training.run import import_modules

RULELESS = "none"
Losses = dict[str, dict[int, dict[float, float]]]  # by rule, depth and learning rate


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

    All models are trained with one seed before the next, so that an interrupted comparison has complete pairs. Every
    model starts from the weights of the first one where names and shapes agree.
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


def transfer_grid(
    base: TrainConfig,
    depths: Sequence[int],
    rates: Sequence[float],
    rule: DepthRule,
    out: Path,
    callback: Callable[[str], Callback] = lambda title: Callback(),
) -> Losses:
    """Return the training loss of the last epoch for each depth and learning rate, without and with the rule.

    The rule starts from the smallest depth, where it changes nothing. A run that diverges has an infinite loss. The
    runs are in `out`, and resume.
    """
    if "/" in base.model:
        raise UserError(f"{base.model} at other depths: expected a network of stepnet, such as gpt8x32")
    network = on_meta(base.model, **base.label.options)
    blocks = {depth: depths_at(network, depth) for depth in depths}
    losses: Losses = {RULELESS: {}, rule: {}}
    for depth in depths:
        for each, tuned in ((RULELESS, None), (rule, depths[0])):
            if tuned == depth:
                losses[each][depth] = losses[RULELESS][depth]
                continue
            losses[each][depth] = {}
            for rate in rates:
                recipe = base.recipe.override({"lr": rate, "tuned_at_depth": tuned, "depth_rule": rule})
                name = f"depth{depth}-lr{rate:g}" + ("" if tuned is None else f"-{rule.replace('/', '_')}")
                kwargs = {**base.model_kwargs, "depths": [*blocks[depth]]}
                config = replace(base, recipe=recipe, model_kwargs=kwargs, out=str(out / name))
                losses[each][depth][rate] = _loss(config, callback(name))
    return losses


def _loss(config: TrainConfig, callback: Callback) -> float:
    """Return the training loss of the last epoch; infinity if the run diverged, which a file in its folder records."""
    diverged = Path(config.out) / "diverged"
    if diverged.exists():
        return math.inf
    try:
        run = train_config(config, callbacks=[callback])
    except UserError as error:
        if "lower --lr" not in str(error):
            raise
        diverged.write_text(f"{error}\n")
        return math.inf
    return float(run.finished()[-1]["loss"])
