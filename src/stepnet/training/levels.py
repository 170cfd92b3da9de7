"""Multilevel training: train a shallow network, refine it into a deeper one, and continue.

    stepnet train preact_resnet56 --levels 20 38 56

Each level is a part of the run, with a network of another depth. Between two levels the checkpoint is refined: every
block is repeated with its output divided, the optimiser's state is repeated too, and the position is unchanged. The
refinement is a function of the checkpoint, so a run that is stopped at any point resumes to the same bits.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from stepnet.errors import UserError
from stepnet.exchange import DESCRIPTION, decode
from stepnet.nets import (
    Grid,
    Network,
    carried_over,
    check_refines,
    depths_at,
    depths_of,
    last_layers,
    on_grid,
    on_meta,
    origin_of,
    own_stages,
    refined_grid,
    regrid,
    stage_paths,
)
from stepnet.tensors import Tensors, read_tensors
from stepnet.training import checkpoint
from stepnet.training.build import build_network, build_optimizer
from stepnet.training.config import TrainConfig
from stepnet.training.describe import describe_progress, describe_run
from stepnet.training.trial import slices

if TYPE_CHECKING:
    from stepnet.training.trainer import Trainer

AVERAGE = "WeightAverage.module."  # the weights of `--ema` in a checkpoint's callbacks
SQUARES = {"exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum"}  # optimiser states that are squared gradients


@dataclass(frozen=True)
class Level:
    """A part of a run: depth as in the model's name, number of blocks in each stage, epoch at which it ends."""

    depth: int
    depths: tuple[int, ...]
    end: int
    full: bool  # whether this is the last level, with the full depth

    def config(self, config: TrainConfig) -> TrainConfig:
        """Return the config with which the network of this level is built."""
        return config if self.full else replace(config, model_kwargs={**config.model_kwargs, "depths": [*self.depths]})


def levels_of(config: TrainConfig) -> list[Level]:
    """Return the levels of a run, none for a run of one depth; raise if one cannot be refined into the next."""
    recipe = config.recipe
    if not recipe.levels:
        return []
    if "/" in config.model or "depths" in config.model_kwargs:
        raise UserError(f"levels {recipe.levels} of {config.model}: expected a network of stepnet, without depths=")
    network = on_meta(config.model, **config.label.options)
    full = depths_of(network)
    depths = [depths_at(network, depth) for depth in recipe.levels]
    if depths[-1] != full:
        raise UserError(
            f"levels {recipe.levels} end at depth {recipe.levels[-1]}, and {config.model} is the last level"
        )
    counts = recipe.level_epochs or [part.stop - part.start for part in slices(recipe.epochs, len(depths))]
    ends = accumulate(counts)
    levels = [Level(*each, full=each[1] == full) for each in zip(recipe.levels, depths, ends, strict=True)]
    for shallow, deep in pairwise(levels):
        try:
            check_refines(network, shallow.depths, deep.depths)
        except UserError as error:
            raise UserError(f"levels {shallow.depth} and {deep.depth} of {config.model}: {error}") from None
    return levels


def level_of(path: Path, levels: list[Level]) -> int:
    """Return the number of the level whose network a checkpoint holds; 0 without a readable checkpoint."""
    if not path.exists():
        return 0
    try:
        options = decode(read_tensors(path)[1][DESCRIPTION], path).options
    except (UserError, KeyError):
        return 0  # loading it will raise
    depths = options.get("depths")
    numbers = [
        n for n, level in enumerate(levels) if level.full == (depths is None) and depths in (None, [*level.depths])
    ]
    return numbers[0] if numbers else 0


def refine_checkpoint(trainer: Trainer, level: Level) -> None:
    """Replace the run's checkpoint by one for the network of the next level."""
    old = cast(Network, trainer.network)
    grid = refined_grid(on_grid(old), None, level.depths)
    config = level.config(trainer.config)
    new = cast(Network, build_network(replace(config, pretrained=False, weights=None, start_like=None), trainer.data))
    new = cast(Network, trainer.place(new))
    new.load_state_dict(_on(grid, old).state_dict())
    optimizer = build_optimizer(trainer.recipe, new)
    _carry_state(trainer.optimizer, optimizer, old, new, grid)
    description = describe_progress(describe_run(config, trainer.data, new), new, trainer.progress.epoch)
    callbacks = refined_callbacks(trainer.callbacks.state_dict(), old, grid)
    collected = checkpoint.collect(new, optimizer)
    checkpoint.save(trainer.run.last, collected, trainer.progress, description, callbacks)


def _on(grid: Grid, network: Network) -> Network:
    origin = origin_of(network)
    dt = 1 if origin is None else origin.options.get("dt", own_stages(network)[0].dts[0])
    return regrid(network, grid, dt if isinstance(dt, int | float) else None)


def refined_callbacks(states: Mapping[str, Tensor], network: Network, grid: Grid) -> Tensors:
    """Refine an average of the weights as the weights; return other states of callbacks unchanged."""
    average = {name.removeprefix(AVERAGE): tensor for name, tensor in states.items() if name.startswith(AVERAGE)}
    if not average:
        return dict(states)
    mean = copy.deepcopy(network)
    mean.load_state_dict(average)
    others = {name: tensor for name, tensor in states.items() if not name.startswith(AVERAGE)}
    return {AVERAGE + name: tensor for name, tensor in _on(grid, mean).state_dict().items()} | others


def _carry_state(
    before: torch.optim.Optimizer, after: torch.optim.Optimizer, old: Network, new: Network, grid: Grid
) -> None:
    """Copy the state of each parameter from the block that it was copied from.

    Dividing the output of a block, in its last layer, also divides the gradients of its other layers.
    """
    kept = {name: before.state.get(parameter, {}) for name, parameter in old.named_parameters()}
    parameters = dict(new.named_parameters())
    shrunk = _divided(old, new, grid)
    for key in sorted({key for state in kept.values() for key in state}):
        values = {name: state[key] for name, state in kept.items() if state.get(key) is not None}
        tensors = {name: torch.as_tensor(value) for name, value in values.items()}
        for name, tensor in carried_over(old, new, grid, tensors, parameters).items():
            factor = shrunk.get(name, 1.0) ** (2 if key in SQUARES else 1) if tensor.ndim else 1.0
            value = tensor * factor if factor != 1 else tensor.clone()
            number = not isinstance(next(iter(values.values())), Tensor)
            after.state[parameters[name]][key] = value.item() if number else value


def _divided(old: Network, new: Network, grid: Grid) -> dict[str, float]:
    """Return the factor of each parameter's gradient: 1 in a block's last layer, the share of its step elsewhere."""
    factors: dict[str, float] = {}
    for path, before, after, steps in zip(stage_paths(old), own_stages(old), own_stages(new), grid, strict=True):
        for name, block, step in zip(after.step_names, after.steps, steps, strict=True):
            source = max(step.blocks, key=lambda n: step.blocks[n])
            share = step.dt / before.dts[source]
            last = {id(p) for layer in last_layers(block) for p in layer.parameters()}
            prefix = f"{path}.{name}."
            for parameter_name, parameter in new.named_parameters():
                if parameter_name.startswith(prefix) and id(parameter) not in last:
                    factors[parameter_name] = share
    return factors
