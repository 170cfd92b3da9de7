"""`stepnet transfer`: a network at several depths and learning rates, with a rule for depth and without."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch

from stepnet.errors import UserError
from stepnet.nets import Network, create_model, depths_at
from stepnet.training.callbacks import Callback
from stepnet.training.config import TrainConfig, model_options
from stepnet.training.loop import train_config
from stepnet.training.recipes import DepthRule
from stepnet.training.run import Run

RULELESS = "none"
Losses = dict[str, dict[int, dict[float, float]]]  # by rule, depth and learning rate


def transfer_grid(
    base: TrainConfig,
    depths: Sequence[int],
    rates: Sequence[float],
    rule: DepthRule,
    out: Path,
    callback: Callable[[str], Callback] = lambda title: Callback(),
) -> Losses:
    """The training loss of the last epoch for each depth and learning rate, without a rule and with it.

    The shallowest depth is the one that the rule starts from, where it changes nothing. A run that diverges has an
    infinite loss. Each is a run of its own in `out`, and resumes.
    """
    options: dict[str, Any] = model_options(base.model_kwargs)
    options |= {"scheme": base.scheme} if base.scheme else {}
    with torch.device("meta"):
        network = cast(Network, create_model(base.model, **options))
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
                config = replace(
                    base,
                    recipe=recipe,
                    model_kwargs={**base.model_kwargs, "depths": [*blocks[depth]]},
                    out=str(out / name),
                )
                losses[each][depth][rate] = _loss(config, callback(name))
    return losses


def _loss(config: TrainConfig, callback: Callback) -> float:
    """That of the last epoch; infinite where the run diverged, which is written down so that it is not tried again."""
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
    return float(Run(run.folder).finished()[-1]["loss"])
