"""More and shorter steps: which blocks are repeated, and the depths that a network's name counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, cast

import torch
from torch import nn

from stepnet.errors import UserError
from stepnet.nets.carried_coefficients import GridStep
from stepnet.nets.model_registry import Origin, create_model, origin_of
from stepnet.nets.network import Network
from stepnet.nets.network_grid import (
    Grid,
    NetworkOnGrid,
    OwnGrid,
    StageOnGrid,
    check_step_sizes,
    depths_of,
    on_grid,
)

Interpolation = Literal["copied", "linear"]


def refine_network(
    network: nn.Module, factor: int | None, depths: Sequence[int] | None, interpolation: Interpolation, dt: float | None
) -> nn.Module:
    """`stepnet.refine`."""
    subject = on_grid(network)
    return subject.on(refined_grid(subject, factor, depths, interpolation), dt)


def refined_grid(
    subject: NetworkOnGrid, factor: int | None, depths: Sequence[int] | None, interpolation: Interpolation = "copied"
) -> Grid:
    """Return the grid with `factor` times the blocks, or with `depths` blocks in each stage."""
    stages, unit, now = subject.stages, subject.unit, subject.depths
    if depths is None:
        counts = [len(stage.blocks) // unit * (factor or 2) for stage in stages]
    else:
        check_depths(depths, now)
        counts = [depth - stage.transitions for stage, depth in zip(stages, depths, strict=True)]
    if not any(len(stage.blocks) for stage in stages):
        raise UserError(f"depths {now}: every block changes the shape, and none can be divided; take a deeper network")
    return [refined(*each, unit, interpolation) for each in zip(stages, counts, strict=True)]


def refined(stage: StageOnGrid, count: int, unit: int, interpolation: Interpolation) -> list[GridStep]:
    """Return the steps of a stage with `count` blocks of `unit` steps each, the added ones spread evenly."""
    first, blocks = stage.transitions, len(stage.blocks) // unit
    if count < blocks or (count and not blocks):
        what = f"{blocks} blocks beside its transition" if first else f"{blocks} blocks"
        raise UserError(f"a stage of {what} cannot be refined to {count}: take as many or more, of 1 at least")
    steps = [GridStep({0: 1.0}, stage.dts[0])] * first
    for n in range(blocks):
        copies = (n + 1) * count // blocks - n * count // blocks
        for i in range(copies):
            share = i / copies if interpolation == "linear" and n + 1 < blocks else 0.0
            for part in range(unit):
                source = first + n * unit + part
                means = {source: 1 - share, source + unit: share} if share else {source: 1.0}
                steps.append(GridStep(means, stage.dts[source] / copies))
    return steps


def check_refines(network: Network, shallow: Sequence[int], deep: Sequence[int]) -> None:
    """Raise if the network at `shallow` depths cannot be refined to `deep` ones."""
    unit = network.steps_per_block
    for stage, few, many in zip(OwnGrid(network).stages, shallow, deep, strict=True):
        first = stage.transitions
        shallower = replace(stage, steps=stage.steps[: first + (few - first) * unit])
        steps = refined(shallower, many - first, unit, "copied")
        check_step_sizes(stage.plan, stage.scheme, [step.dt for step in steps], scaled=True)


def depths_at(network: Network, depth: int) -> tuple[int, ...]:
    """Return the blocks of each stage at another depth, counted as in the name: 20 is (3, 3, 3) for a resnet56.

    A ResNet counts its layers, of which two are stem and head; a GPT `gpt48x48` counts blocks.
    """
    now = depths_of(network)
    origin = cast(Origin, origin_of(network))
    name, options = origin.name, {key: value for key, value in origin.options.items() if key not in ("depths", "dt")}
    if "depths" in origin.options:  # not those that the name counts
        with torch.device("meta"):
            now = depths_of(create_model(name, **options))
    counted = named_depth(name, now)
    if counted is None or len(set(now)) > 1:
        raise UserError(f"{name} has stages of {now} blocks, and its name does not say how other depths are counted")
    layers, outside = counted
    blocks, rest = divmod(depth - outside, layers * len(now))
    if blocks < 1 or rest:
        unit = layers * len(now)
        near = ", ".join(str(unit * n + outside) for n in (1, 2, 3))
        raise UserError(f"{name} at depth {depth}: expected {unit}n + {outside}, for example {near}")
    return (blocks,) * len(now)


def named_depth(name: str, now: Sequence[int]) -> tuple[int, int] | None:
    """Return the layers of a block and those outside all blocks, if a number in the name is the depth."""
    for number in map(int, re.findall(r"\d+", name)):
        for outside in (0, 2):
            layers, rest = divmod(number - outside, sum(now))
            if layers > 0 and not rest:
                return layers, outside
    return None


def check_depths(depths: Sequence[int], now: tuple[int, ...]) -> None:
    """Raise if there is not one depth for each stage."""
    if len(depths) != len(now):
        raise UserError(f"depths = {tuple(depths)}: the network has {len(now)} stages, of {now} blocks")
