"""`stepnet.refine` and `stepnet.coarsen`: depth is time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar, cast

from torch import Tensor, nn

from stepnet.arguments import Count, OpenShare, Positive, checked
from stepnet.errors import UserError
from stepnet.exchange.model_description import ModelDescription, describe_network
from stepnet.exchange.model_files import attach
from stepnet.nets import Interpolation, Refit, coarsen_network, refine_network

Model = TypeVar("Model", bound=nn.Module)


@checked
def refine(
    network: Model,
    factor: Count = 2,
    *,
    depths: Sequence[Count] | None = None,
    interpolation: Interpolation = "copied",
    dt: Positive | None = None,
) -> Model:
    """Return a network with `factor` times the blocks and steps as much shorter: the same flow on a finer grid.

    `depths` are the numbers of blocks of each stage instead, such as (6, 6, 6) for a resnet20; blocks that are repeated
    more often are spread evenly. "copied" repeats each block; "linear" inserts blocks whose weights, coefficients and
    running statistics are interpolated between neighbours. A block that changes the shape is unchanged. With a `dt`,
    the result has this step size, and the last layer of each block is scaled instead: `refine(resnet20,
    depths=(6, 6, 6), dt=1)` is a plain resnet38.
    """
    return described_like(refine_network(network, factor, depths, interpolation, dt), network)


@checked
def coarsen(
    network: Model,
    keep: OpenShare | None = None,
    example: Tensor | None = None,
    *,
    depths: Sequence[Count] | None = None,
    refit: Refit = True,
) -> Model:
    """Return a network with a share `keep` of the blocks and longer steps.

    The least important blocks are removed: on `example`, a batch of inputs (no labels), those that change the outputs
    least; without one, those whose weights are nearest to their neighbours', so that `coarsen(refine(network, 2), 0.5)`
    is the network again if no block changes the shape. With an example, the step sizes and coefficients of the others
    are fitted to the outputs of the whole network, unless `refit` is off: then the block before takes over the time. No
    weight changes, except with `refit="matrix"`: each step has a matrix in place of dt, fitted to the states of the
    whole network and multiplied into the last layer of its block. `depths` are the numbers of blocks to keep in each
    stage, instead of `keep`.
    """
    if (keep is None) == (depths is None):
        raise UserError(f"keep = {keep!r} and depths = {depths!r}: give one of them")
    return described_like(coarsen_network(network, keep, example, depths, refit), network)


def described_like(new: nn.Module, old: nn.Module) -> Model:  # type: ignore[type-var]
    """Describe the new network with the classes and preprocessing of the old one."""
    before = getattr(old, "description", None)
    if isinstance(before, ModelDescription):
        now = replace(describe_network(new, before.classes, before.preprocessing), license=before.license)
        attach(new, now)
    return cast(Model, new)
