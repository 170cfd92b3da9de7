"""Depth is time: the same network on another grid of steps, with more and shorter ones or fewer and longer ones.

A block is the right-hand side of `u' = f(t, u)` over its step. On a finer grid it is repeated, with its step size
divided; on a coarser one the step of a neighbour grows (`coarsening`). A transition changes the shape and is not part
of the equation: it stays one step. Stem and head are unchanged. Running statistics are copied with their block.

`carried_coefficients` says how coefficients follow the step sizes.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import singledispatch
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.nets.blocks import PostActivation, PreActivation, Sum, UnsharedWeights
from stepnet.nets.carried_coefficients import GridStep, carried_coefficients
from stepnet.nets.model_registry import create_model, origin_of
from stepnet.nets.network import Network
from stepnet.nets.network_steps import NetworkStep
from stepnet.nets.stage import Stage, written
from stepnet.nets.transitions import Coupling
from stepnet.schemes import Plan, Point, Scheme, advance

NetworkT = TypeVar("NetworkT", bound=Network)
Grid = list[list[GridStep]]  # for each stage its steps, a transition among them


@dataclass(frozen=True)
class StageOnGrid:
    """A stage by its steps: one of ours, its first steps, or one that `convert` made."""

    steps: Sequence[NetworkStep]
    plan: Plan

    @property
    def scheme(self) -> Scheme:
        """The scheme of the stage."""
        return self.steps[0].network_scheme

    @property
    def dts(self) -> tuple[float, ...]:
        """The step sizes."""
        return tuple(step.dt for step in self.steps)

    @property
    def transitions(self) -> int:
        """1 if the first step changes the shape, else 0."""
        return int(self.plan.entry != "identity")

    @property
    def blocks(self) -> list[nn.Module]:
        """The blocks after the transition."""
        return [step.block for step in self.steps[self.transitions :]]


class NetworkOnGrid(ABC):
    """A network as a grid of steps, which can be built on another grid."""

    network: nn.Module
    stages: Sequence[StageOnGrid]
    unit: int  # steps of a block: two of a GPT's layer

    @property
    def depths(self) -> tuple[int, ...]:
        """The number of blocks in each stage, including a transition."""
        return tuple(stage.transitions + len(stage.blocks) // self.unit for stage in self.stages)

    @property
    def least(self) -> tuple[int, ...]:
        """The smallest number of blocks that each stage can have."""
        return (1,) * len(self.stages)

    @abstractmethod
    def on(self, grid: Grid, dt: float | None = None) -> nn.Module:
        """Return the network on another grid; with a `dt`, all steps have it, and the last layers are scaled."""

    @abstractmethod
    def coefficients(self) -> list[nn.Parameter]:
        """Return the parameters of all coefficients."""

    @abstractmethod
    def stepping(self, dts: Sequence[Tensor]) -> AbstractContextManager[None]:
        """Within the context, take steps of these sizes, which may require a gradient."""


@singledispatch
def on_grid(network: nn.Module) -> NetworkOnGrid:
    """Return the grid of a network; raise if it has no stages."""
    raise UserError(
        f"{type(network).__name__} has no stages that a scheme steps through: take a network of create_model, or "
        "convert it"
    )


def regrid(network: NetworkT, grid: Grid, dt: float | None = None) -> NetworkT:
    """Build the network on another grid with `create_model`, and copy blocks, coefficients and running statistics.

    With a `dt`, all steps have that size, and the last layer of each block is scaled by the grid's step size instead.
    """
    origin = origin_of(network)
    stages = own_stages(network)
    assert origin is not None
    for stage, steps in zip(stages, grid, strict=True):
        check_step_sizes(stage.plan, stage.scheme, [step.dt for step in steps], scaled=dt is not None)
    sizes = [[step.dt for step in steps] for steps in grid]
    distinct = {size for row in sizes for size in row}
    options = {
        **origin.options_now(network),
        "depths": depths_on(network, grid),
        "dt": dt if dt is not None else distinct.pop() if len(distinct) == 1 else sizes,
    }
    like = next(network.parameters())
    with torch.random.fork_rng(devices=[]), torch.device(like.device):
        new = create_model(origin.name, **options).to(like.dtype)
    state = carried_over(network, new, grid, network.state_dict(), new.state_dict())
    for path, old, other, steps in zip(stage_paths(network), stages, own_stages(new), grid, strict=True):
        state |= {f"{path}.{name}": k for name, k in carried_coefficients(old, other, steps).items()}
    try:
        new.load_state_dict(state)
    except (RuntimeError, KeyError):
        raise UserError(
            f"{origin.name} was altered after it was built, and cannot be built with other depths"
        ) from None
    if dt is not None:
        for other, steps in zip(own_stages(new), grid, strict=True):
            for block, step in zip(other.steps, steps, strict=True):
                scale(block, (step.dt / dt) ** other.scheme.equation.derivative)
    for old, other in zip(stages, own_stages(new), strict=True):
        other.set_memory(old.memory)
    return cast(NetworkT, new.train(network.training))


class OwnGrid(NetworkOnGrid):
    """The grid of a network of `create_model`."""

    def __init__(self, network: Network) -> None:
        self.network: Network = network
        self.own = own_stages(network)
        self.stages = [StageOnGrid([*stage.network_steps()], stage.plan) for stage in self.own]
        self.unit = network.steps_per_block

    def on(self, grid: Grid, dt: float | None = None) -> nn.Module:
        return regrid(self.network, grid, dt)

    def coefficients(self) -> list[nn.Parameter]:
        ks = (stage.k if stage.bound is None else getattr(stage, "k_free", None) for stage in self.own)
        named = [p for stage in self.own if stage.mixing is not None for p in stage.mixing.parameters()]
        return [k for k in ks if k is not None] + named

    @contextmanager
    def stepping(self, dts: Sequence[Tensor]) -> Iterator[None]:
        marches = [stage.march for stage in self.own]
        for stage, sizes in zip(self.own, dts, strict=True):
            stage.march = stage.march.with_step_sizes(sizes.to(next(stage.parameters())).unbind())
        try:
            yield
        finally:
            for stage, march in zip(self.own, marches, strict=True):
                stage.march = march


@on_grid.register
def _(network: Network) -> NetworkOnGrid:
    return OwnGrid(network)


def carried_over(
    old: Network, new: Network, grid: Grid, tensors: Mapping[str, Tensor], names: Iterable[str]
) -> dict[str, Tensor]:
    """Carry tensors by parameter name (weights, or optimiser state) over to the `names` of the new network.

    A block takes those of its source block, a coefficient those of its source step, or 0 if that step owned none.
    """
    wanted = set(names)
    paths = stage_paths(old)
    inside = tuple(f"{path}." for path in paths)
    carried = {name: tensor for name, tensor in tensors.items() if name in wanted and not name.startswith(inside)}
    for path, before, after, steps in zip(paths, own_stages(old), own_stages(new), grid, strict=True):
        for name, step in zip(after.step_names, steps, strict=True):
            sources = {f"{path}.{before.step_names[n]}.": share for n, share in step.blocks.items()}
            carried |= _mean(f"{path}.{name}.", wanted, tensors, sources)
        prefixes = (f"{path}.k", f"{path}.k_free", f"{path}.mixing.")
        for k in (name for name in wanted & tensors.keys() if name.startswith(prefixes)):
            if not tensors[k].ndim:  # a scalar of an optimiser, such as the step count
                carried[k] = tensors[k]
                continue
            owned = dict(zip(before.plan.owners, tensors[k], strict=True))
            zero = torch.zeros_like(tensors[k][0])
            rows = [
                sum((share * owned.get(source, zero) for source, share in steps[n].blocks.items()), zero)
                for n in after.plan.owners
            ]
            carried[k] = torch.stack(rows)
    return carried


def stage_paths(network: nn.Module) -> list[str]:
    """Return the names of the stages."""
    return [path for path, module in network.named_modules() if isinstance(module, Stage)]


def own_stages(network: Network) -> list[Stage]:
    """Return the stages of a network whose depths are an option of `create_model`; raise for any other."""
    origin = origin_of(network)
    if not network.steps_per_block:
        raise UserError(f"{type(network).__name__} has no stages of blocks that a scheme steps through")
    if origin is None:
        raise UserError(f"{type(network).__name__} does not say how it was built: build it with stepnet.create_model")
    stages = [module for module in network.modules() if isinstance(module, Stage)]
    for stage in stages:
        check_follows_time(stage.scheme)
    return stages


def depths_of(network: Network) -> tuple[int, ...]:
    """Return the number of blocks in each stage, including a transition; for a GPT, its layers."""
    return OwnGrid(network).depths


def depths_on(network: Network, grid: Grid) -> tuple[int, ...]:
    """Return the number of blocks in each stage of a grid."""
    firsts = [stage.transitions for stage in OwnGrid(network).stages]
    return tuple(
        first + (len(steps) - first) // network.steps_per_block for first, steps in zip(firsts, grid, strict=True)
    )


def check_follows_time(scheme: Scheme) -> None:
    """Raise for learned weights of past states: the same number of steps ago, or the same time ago, is undefined.

    Coefficients that vary with the state are not carried over either.
    """
    if any(one.varies for one in scheme.learned):
        raise UserError(
            f"scheme {scheme.name!r} has coefficients that depend on the state: it cannot be refined or coarsened; "
            "take 'hyper'"
        )
    if any(one.in_time is None for one in scheme.learned):
        raise UserError(
            f"scheme {scheme.name!r} learns weights of past states, which on another grid could be those as many steps "
            "ago or as long ago: it cannot be refined or coarsened; take euler, lm, momentum, x0, hyper or mhc"
        )


def check_step_sizes(plan: Plan, scheme: Scheme, dts: Sequence[float], scaled: bool = False) -> None:
    """Raise for step sizes with which a multistep scheme would solve another equation.

    LM with trainable k takes any. Blocks that are `scaled` in place of dt pass their scale to later steps, too.
    """
    if len(set(dts)) == 1 or scheme.steps == 1:
        return
    if (scheme.trainable or _follows_time(scheme, dts)) and not (scaled and plan.reads_older_f):
        return
    raise UserError(
        f"scheme {scheme.name!r} needs steps of one length in a stage, and they would be {written(dts)}: a stage that "
        "begins with a transition, or depths that are no multiples, cannot be refined with it"
    )


def _follows_time(scheme: Scheme, dts: Sequence[float]) -> bool:
    """Whether the scheme solves `u' = 1` (or `u'' = 1` from rest) exactly with these steps."""
    history: tuple[Point, ...] = ()
    u = 0.0
    for dt in dts:
        history = (Point(u, lambda u, c, i: 1.0), *history)[: scheme.steps]
        u = float(advance(scheme, history, dt, scheme.k))
    order = scheme.equation.derivative
    return math.isclose(u, sum(dts) ** order / math.factorial(order), rel_tol=1e-9)


def _mean(
    prefix: str, names: Iterable[str], weights: Mapping[str, Tensor], sources: Mapping[str, float]
) -> dict[str, Tensor]:
    """Return the tensors of a new block: a copy of its source, or the mean of several."""
    means: dict[str, Tensor] = {}
    for name in names:
        if not name.startswith(prefix):
            continue
        rest = name.removeprefix(prefix)
        # An evaluation that the old block did not have starts from the statistics of the first.
        source_name = rest if next(iter(sources)) + rest in weights else re.sub(r"_\d+$", "", rest)
        tensors = [weights[source + source_name] for source in sources if source + source_name in weights]
        if len(tensors) < len(sources):
            continue
        shares = list(sources.values())
        if len(tensors) == 1 or not tensors[0].is_floating_point():
            means[name] = tensors[0].clone()
        else:
            terms = (share * tensor for share, tensor in zip(shares, tensors, strict=True))
            means[name] = sum(terms, torch.zeros_like(tensors[0]))
    return means


@torch.no_grad()
def scale(block: nn.Module, factor: float) -> None:
    """Multiply f by a factor, through its last layer."""
    for layer in last_layers(block):
        for parameter in layer.parameters():
            parameter.mul_(factor)


def last_layers(block: nn.Module) -> list[nn.Module]:
    """Return the layers to whose outputs f is proportional."""
    if isinstance(block, Coupling):
        return [*last_layers(block.f), *last_layers(block.g)]
    if isinstance(block, UnsharedWeights | Sum):
        return [layer for f in block.fs for layer in last_layers(f)]
    if isinstance(block, PreActivation):
        return [block.convs[-1]]
    if isinstance(block, PostActivation):
        return [block.norms[-1]]
    if isinstance(layer := getattr(block, "project", None), nn.Linear):
        return [layer]
    raise UserError(f"a block of {type(block).__name__} has no last layer to scale: leave out dt")
