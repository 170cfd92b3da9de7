"""`stepnet.convert` and `stepnet.revert`: a scheme into someone else's network, and out again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Literal, TypeVar, cast

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from stepnet.arguments import checked
from stepnet.conversion.carried_past import Role
from stepnet.conversion.chains import Blocks, Chain, Selection, candidates, link, named_blocks, select
from stepnet.conversion.converted_network import ConvertedNetwork, become_converted, become_plain
from stepnet.conversion.inline import Residual
from stepnet.conversion.step import ConvertedStep, become_block, become_step
from stepnet.conversion.step_coefficients import add_coefficients
from stepnet.conversion.summary import REPORT, Conversion, forget_conversion, remember_conversion
from stepnet.conversion.trace import Call, copied, trace
from stepnet.errors import UserError
from stepnet.nets import (
    Bound,
    BoundOption,
    March,
    Memory,
    Network,
    Stage,
    StepSizes,
    StochasticDepth,
    check_makes_network,
    choose_memory,
    sizes_by_stage,
    step_sizes,
    trajectory,
)
from stepnet.schemes import Scheme, feature_dimension, get_scheme, warn_if_rarely_used, warn_of_memory

Model = TypeVar("Model", bound=nn.Module)
TRAJECTORY = "trajectory"  # the method that returns its states


@checked
def convert(
    model: Model,
    scheme: str | Scheme = "lm",
    example: Any = None,
    *,
    inplace: bool = False,
    init: Literal["paper", "identity"] | float = "paper",
    dt: StepSizes = 1,
    k_bound: BoundOption = None,
    blocks: Blocks | None = None,
    memory: Memory = "stored",
    stochastic_depth: float | Mapping[str, Any] | None = None,
    step: Literal["layer", "sublayer"] | None = None,
    verbose: bool = False,
) -> Model:
    """Put a scheme into the residual stages of a network: `B(u_n)` becomes `B(u_n) + k_n (u_{n-1} - u_n)` for `lm`.

    Returns a converted copy, or with `inplace` the network itself. `example` is what the network is run on once to
    find its residual blocks (a tensor, a tuple of arguments, a dict of keyword arguments); without one it is guessed.

    `init` is how trainable coefficients start: "paper" draws them from the scheme's own law (`lm`: U[-0.1, 0], or the
    `k` that it was made with), "identity" sets them to 0, which leaves the network's outputs as they were, a number
    sets them all to it. `dt` multiplies every f: with `init=-0.9, dt=0.1` the network is a momentum network; a list of
    lists has one for each step of each row. `k_bound` keeps k in an interval while it is trained: "stable" for the one
    where the scheme is zero-stable, or two numbers.
    `blocks` names the blocks instead of finding them: a class, a pattern for module or class names, or several.
    `memory` says what a gradient keeps: "stored" all that autograd saves, "recompute" the states (the blocks, not the
    scheme's own terms, are evaluated again), "reversible" the last states of each stage (for blocks without an
    activation after their sum), "auto" the best of these for the first `k`.
    `stochastic_depth` is the survival probability of the last step, or options, as in networks of ours; gates of a
    caller go in as `network(x, noise=gates)`, and a running cost as `network(x, cost=cost)`.
    `step` says what a step is in a transformer: a whole "layer", or each "sublayer" (attention, feed-forward network),
    a module of its own or a sum inside the layer's forward. By default it is the smallest block that is a module.
    `verbose` prints what became a step, what stayed, and why.
    """
    method = get_scheme(scheme)
    _check(model, method, init)
    if method.splits and step == "sublayer":
        raise UserError(f"step='sublayer': a step of {method.name!r} has both branches of a layer; leave step= out")
    selection = _select(model, method, example, blocks, step=step)
    model = model if inplace else copied(model)
    return _converted(model, method, selection, init, dt, k_bound, blocks, memory, stochastic_depth, verbose)


def convert_again(
    model: nn.Module, scheme: str, stages: Sequence[Sequence[str]], split: Sequence[str], example: Any = None, *,
    dt: StepSizes = 1, k_bound: BoundOption = None, blocks: Blocks | None = None,
    stochastic_depth: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Convert, in place, the blocks of a recorded conversion: those `stages`, and only the blocks in `split` split.

    A later version of stepnet may find more blocks in a network; a network that was saved keeps its steps.
    """
    method = get_scheme(scheme)
    _check(model, method, "paper")
    names = [name for stage in stages for name in stage]
    blocks_of = {name: name.partition(":")[0] for name in names}
    divided = {block for name, block in blocks_of.items() if name != block}
    selection = _select(model, method, example, list(blocks_of.values()), split, divided=divided)
    _converted(model, method, selection, dt=dt, k_bound=k_bound, blocks=blocks, stochastic_depth=stochastic_depth)


def _converted(
    model: Model,
    method: Scheme,
    selection: Selection,
    init: str | float = "paper",
    dt: StepSizes = 1,
    k_bound: BoundOption = None,
    blocks: Blocks | None = None,
    memory: Memory = "stored",
    stochastic_depth: float | Mapping[str, Any] | None = None,
    verbose: bool = False,
) -> Model:
    """Make the selected blocks of the model steps, and return the model."""
    bound = Bound.of(k_bound, method)
    for chain in selection.chains:
        warn_of_memory(method, len(chain.calls))
    warn_if_rarely_used(method, (chain.plan(method) for chain in selection.chains))
    conversion = Conversion.of(method, selection)
    stochastic = None
    if stochastic_depth is not None:
        stochastic = StochasticDepth.of(stochastic_depth, conversion.steps, dt if isinstance(dt, int | float) else 1)
    numbers, roles = count(), dict[str, list[Role]]()
    for chain, size in zip(selection.chains, sizes_by_stage(dt, len(selection.chains)), strict=True):
        mode = _memory(chain, method, init, memory)
        dts = step_sizes(size, len(chain.calls))
        roles |= _roles(chain, method, dts, mode, bound, numbers, stochastic)
    for name, steps in roles.items():
        _check_statistics(model, name, steps)
    become_converted(model, conversion.steps, stochastic)
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
    for name, steps in roles.items():
        block = model.get_submodule(name)
        near = next((p for p in block.parameters() if p.is_floating_point()), like)
        add_coefficients(become_step(block, steps), init, near)
    setattr(model, REPORT, conversion)
    remember_conversion(model, conversion.record(dt, bound, blocks, stochastic))
    if not hasattr(model, TRAJECTORY):
        setattr(model, TRAJECTORY, partial(trajectory, model))
    if verbose:
        print(conversion)
    return model


@checked
def revert(model: Model) -> Model:
    """Restore the original network, in place: the same modules with their original classes, without coefficients."""
    steps = [module for module in model.modules() if isinstance(module, ConvertedStep)]
    if not steps:
        raise UserError(f"{type(model).__name__} has no converted block: nothing to revert")
    for step in steps:
        become_block(step)
    for module in model.modules():  # a part of the network may have been converted by itself
        if hasattr(module, REPORT):
            forget_conversion(module)
            become_plain(cast(ConvertedNetwork, module))
            vars(module).pop(TRAJECTORY, None)
    return model


@checked
def describe(model: nn.Module, scheme: str | Scheme = "lm", example: Any = None) -> Conversion:
    """Return what `convert` did to a network, or would do: what is a step in each stage, what stays, and why."""
    done = getattr(model, REPORT, None)
    if isinstance(done, Conversion):
        return done
    method = get_scheme(scheme)
    _check(model, method, "paper")
    return Conversion.of(method, _select(model, method, example, None))


def _select(
    model: nn.Module,
    scheme: Scheme,
    example: Any,
    blocks: Blocks | None,
    split: Sequence[str] | None = None,
    step: Literal["layer", "sublayer"] | None = None,
    divided: Collection[str] | None = None,
) -> Selection:
    """Select the chains among the model's blocks. If blocks to `split` or layers `divided` are named, no others are."""
    model = copied(model)  # running it with autograd on may fill caches in its modules
    watched = candidates(model) if blocks is None else named_blocks(model, blocks)
    calls = trace(model, example, watched, sums=step == "sublayer" or bool(divided) or scheme.splits)
    for call in calls:
        call.split = call.split if split is None or call.name in split else None
        call.reads = call.reads if divided is None or scheme.splits or call.name in divided else []
    selection = select(calls, scheme, named=blocks is not None, layers=step == "layer" or scheme.splits)
    _check_sublayers(selection, scheme)
    for chain in [chain for chain in selection.chains if chain.repeats and not _linked(model, example, chain)]:
        selection.chains.remove(chain)
        selection.left |= dict.fromkeys(chain.names, "called several times, and its state is altered in training")
    if not selection.chains:
        raise _nothing_selected(model, scheme, calls, selection, named=blocks is not None)
    return selection


def _nothing_selected(
    model: nn.Module, scheme: Scheme, calls: Sequence[Call], selection: Selection, named: bool
) -> UserError:
    """Return the error for a network without a chain to convert: what was found, and what may help."""
    unconverted = [*selection.left.items(), *selection.stays.items()]
    reasons = "; ".join(f"{name}: {reason}" for name, reason in unconverted[:3])
    found = f"found {len(calls)} that ran ({reasons})" if reasons else "found no block that takes a state"
    if scheme.splits:
        return UserError(
            f"scheme {scheme.name!r} splits u' = f + g: it needs layers of two branches, added one after the other "
            f"without a norm after them, as in GPT-2, Llama or ViT; {found}"
        )
    advice = ""
    if not named and select(calls, scheme, named=True).chains:
        advice = "; name blocks yourself with blocks="
    elif not named:
        advice = "; write a sum inside a forward as stepnet.Residual()(u, f), or as a module that returns u + f(u)"
    return UserError(
        f"{type(model).__name__} has no residual stage: looked for {scheme.steps} or more "
        f"{'of the named blocks' if named else 'residual blocks'} in a row with equal input and output shape, "
        f"{found}{advice}"
    )


def _check_sublayers(selection: Selection, scheme: Scheme) -> None:
    """Raise for a scheme that evaluates f several times in a step: a layer's forward runs once."""
    for chain in selection.chains:
        divided = [call.name for call in chain.calls if call.part is not None]
        if divided and max(chain.plan(scheme).evaluations) > 1:
            raise UserError(
                f"step='sublayer': scheme {scheme.name!r} evaluates f several times in a step, and the sums inside the "
                f"forward of {divided[0]!r} are evaluated once; take step='layer', or write them with stepnet.Residual"
            )


def _linked(model: nn.Module, example: Any, chain: Chain) -> bool:
    """Whether a chain with repeated blocks is also one in training.

    Other steps raise if their state has no past. The first step needs none, and a block that is called again cannot
    know that it is not the first.
    """
    try:
        calls = trace(model, example, {call.name: call.block for call in chain.calls}, training=True)
    except UserError:  # batch norm of one value, for example
        return False
    blocks = tuple(call.name for call in chain.calls if not call.part)
    return blocks in [row.names for row in link(calls)]


def _memory(chain: Chain, scheme: Scheme, init: str | float, memory: Memory) -> Memory:
    """Return the memory mode of a chain of blocks, or raise if it cannot have it."""
    if any(call.kinds for call in chain.calls) and memory in ("reversible", "auto"):
        if memory == "reversible":
            advice = "memory='recompute'" if scheme.splits else "step='layer'"
            raise UserError(f"memory='reversible': steps inside a layer cannot be taken back; take {advice}")
        return "recompute"
    if scheme.streams and scheme.invertible and memory in ("reversible", "auto"):
        if memory == "reversible":
            raise UserError(
                f"memory='reversible': converted blocks hand on the streams of {scheme.name!r} beside their state, and "
                "keep them; take memory='recompute', or a network of create_model"
            )
        return "recompute"
    activated = [call.name for call in chain.calls if call.split is not None and call.split.after]
    first = (scheme.initial_k[1] if scheme.trainable else scheme.k) if isinstance(init, str) else init
    ks = [0.0 if init == "identity" else first] * len(chain.calls)
    return choose_memory(memory, scheme, ks, f"the activation after {activated[0]!r}" if activated else "")


def _roles(
    chain: Chain,
    scheme: Scheme,
    dts: Sequence[float],
    memory: Memory,
    bound: Bound | None,
    numbers: Iterator[int],
    stochastic: StochasticDepth | None,
) -> dict[str, list[Role]]:
    """Return the roles of each block, one for each of its steps."""
    plan = chain.plan(scheme)
    steps = March(scheme, plan, dts, whole=[call.split is None for call in chain.calls]).steps
    roles: dict[str, list[Role]] = {call.name: [] for call in chain.calls}
    for place, call in enumerate(chain.calls):
        block_roles, number = roles[call.name], next(numbers)
        role = Role(
            name=call.step_name,
            scheme=scheme,
            place=place,
            method=plan.steps[place].method,
            step=steps[place],
            last=place == len(chain.calls) - 1,
            chain=chain.names,
            split=call.split,
            kinds=call.kinds,
            overwrites=call.overwrites,
            argument=call.argument,
            result=call.result,
            only_output=call.only_output,
            memory=memory,
            k_index=sum(role.k_index is not None for role in block_roles) if place in plan.owners else None,
            number=number,
            mean_gate=None if stochastic is None else stochastic.means[number],
            bound=bound,
            width=call.after.shape[feature_dimension(call.after.ndim)],
            keeps_f=place in plan.kept_f,
            evaluations=plan.evaluations[place],
        )
        block_roles.append(role)
    return roles


def _check_statistics(model: nn.Module, name: str, roles: Sequence[Role]) -> None:
    """Raise if a batch norm of a `Residual` or of a layer's branch is evaluated several times in a step.

    Its statistics cannot be told apart.
    """
    block, split = model.get_submodule(name), roles[0].scheme.splits
    place = model.get_submodule(name.rpartition(".")[0]) if isinstance(block, Residual) else block
    normed = any(isinstance(part, _NormBase) and part.running_mean is not None for part in place.modules())
    if normed and (split or isinstance(block, Residual)) and max(role.evaluations for role in roles) > 1:
        raise UserError(
            f"scheme {roles[0].scheme.name!r} evaluates f several times in a step, and {name!r} cannot tell the "
            "statistics of its batch norm apart: make each u + f(u) a block of its own"
        )


def _check(model: nn.Module, scheme: Scheme, init: str | float) -> None:
    if any(isinstance(module, ConvertedStep) for module in model.modules()):
        raise UserError(f"{type(model).__name__} is already converted: call stepnet.revert first")
    if any(isinstance(module, Stage) for module in model.modules()):
        instead = "build its stages with that scheme"
        if isinstance(model, Network):
            another = hasattr(model, "scheme")
            instead = "build it with create_model(name, scheme=…)" if another else "it takes no scheme but its own"
        raise UserError(f"{type(model).__name__} is made of stepnet's own stages: {instead}")
    check_makes_network(scheme, branches=True)
    if scheme.learned and not isinstance(init, str):
        raise UserError(f"init={init!r}: the coefficients of {scheme.name!r} have names; give them to get_scheme")
    if init != "paper" and not scheme.trainable:
        raise UserError(f"init={init!r}: scheme {scheme.name!r} has no trainable k to set")
