"""What a converted step is, and the past that a state carries from one step to the next.

The past travels with the state: `u_n` carries `u_{n-1}` as an attribute of the tensor. Nothing is kept in modules or in
global variables, so threads, re-entrant calls and forward passes that raised cannot mix their pasts; the network's own
loop over its blocks may stay, and `torch.compile`, `torch.export` and torch.fx trace it whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Proxy

from stepnet.conversion.places import FIRST, Argument, Path
from stepnet.conversion.split import Split
from stepnet.errors import UserError
from stepnet.nets import Bound, Memory, RecordedStep, ReversibleMarch, States, only_reverse_mode
from stepnet.schemes import Scheme, State, StepMethod

PAST = "_stepnet_past"  # the attribute in which a state carries the states before it


@dataclass(frozen=True)
class Role:
    """What one call of a block does in its chain of steps."""

    name: str  # its path in the network, followed by `:0`, `:1`, … where a call takes several steps
    scheme: Scheme
    place: int  # number of steps before it in the chain
    method: StepMethod  # whether the scheme, its starter or its transition takes the step
    step: RecordedStep  # the arithmetic of the step
    argument: Argument  # where the state is in the block's arguments,
    result: Path = FIRST  # and where the new state is in its output
    only_output: bool = True  # the output is the new state and nothing else
    last: bool = False  # the last step of the chain, whose state needs no past
    chain: tuple[str, ...] = ()  # the blocks of the chain, in order
    split: Split | None = None  # branch, shortcut and activation, if they are known
    kinds: tuple[str, ...] = ()  # of a layer whose residual sums are known: see `sublayers`
    overwrites: bool = False  # the block works in place, and gets a copy of the state
    memory: Memory = "stored"  # what is saved for the gradient: see `stepnet.nets.march`
    keeps_f: bool = False  # later steps read this step's f
    evaluations: int = 1  # number of evaluations of the block in this step
    k_index: int | None = None  # index of this step among the block's coefficients; None if it has none
    number: int = 0  # number of steps before it in the network
    mean_gate: float | None = None  # the gate in evaluation, under stochastic depth
    bound: Bound | None = None  # the interval of k
    width: int | None = None  # number of features of the state, for coefficients that depend on it

    # What follows from these, so that no step has to ask:
    repeats: bool = field(init=False)  # a block occurs more than once in the chain
    transition: bool = field(init=False)  # the shape changes; the projected input is the past of the next step
    inverted: bool = field(init=False)  # by the backward pass; a step without its whole past cannot be inverted
    plain: bool = field(init=False)  # a branch evaluated once and stored: a call without gates has nothing to decide
    reads: int = field(init=False)  # number of older states that it reads

    def __post_init__(self) -> None:
        scheme, repeats = self.scheme, len(set(self.chain)) < len(self.chain)
        stored = self.memory == "stored" and self.evaluations == 1 and self.mean_gate is None
        vars(self).update(
            repeats=repeats,
            transition=self.method == "transition",
            inverted=self.memory == "reversible" and self.method == "scheme",
            plain=stored and self.split is not None and not (repeats or self.kinds or scheme.streams),
            reads=self.place if scheme.whole_past else min(self.place, scheme.steps - 1),
        )

    @property
    def dt(self) -> float:
        """The weight of f."""
        dt: float = self.step.dt
        return dt

    @property
    def sublayer(self) -> str:
        """The end of the name, `:0` or `:1`, of a step inside a layer."""
        return "".join(self.name.partition(":")[1:])

    @property
    def activated(self) -> bool:
        """Whether an activation or a norm follows the sum."""
        return "norm" in self.kinds or (self.split is not None and bool(self.split.after))


@dataclass(eq=False)
class CarriedPast:
    """The past of a state; copying or saving the state drops it."""

    us: States = ()  # the states before it, newest first
    fs: States = ()  # the values of f at them, if later steps read them
    version: int | None = None  # of the state; a different one means that it was changed in place
    chain: tuple[str, ...] = ()  # the blocks of the chain
    place: int = 0  # number of its steps that led to the state
    march: ReversibleMarch | None = None  # the reversible march of the state
    exact: Tensor | None = None  # the state in that march's precision
    streams: State = None  # the streams from which the state was read out

    def __reduce__(self) -> tuple[Any, ...]:
        return (set, ())  # an empty set can be loaded with weights_only=True, if a caller saves the state


NO_PAST = CarriedPast()


def past_of(role: Role, u: Tensor) -> CarriedPast:
    """Return the past that `u_n` carries; raise if the step needs one and it is missing or outdated."""
    streams = bool(role.scheme.streams) and role.place > 0
    if not role.reads and not streams:
        return NO_PAST
    past = getattr(u, PAST, None)
    if isinstance(past, CarriedPast) and streams:
        past = replace(past, us=()) if past.streams is not None else None
    if not isinstance(past, CarriedPast) or len(past.us) != role.reads or overwritten(u, past.version):
        raise UserError(
            f"step {role.name!r} of scheme {role.scheme.name!r} got a state that its run did not make, and so has no "
            "past: call the whole network, alter or clone no state between its steps (captum clones: name a whole "
            "stage), put no full backward hook on a step; with gradient checkpointing, choose use_reentrant=False"
        )
    return past


def next_past(role: Role, u: Tensor, f: State, past: CarriedPast) -> CarriedPast:
    """Return the past of `u_{n+1}`: the states up to `u_n`, and their f if later steps read them."""
    if role.last:
        return CarriedPast()
    older = role.scheme.steps - 1
    fs = (f, *past.fs)[:older] if role.keeps_f else ()
    if role.scheme.whole_past or (role.transition and role.scheme.streams):
        older = len(past.us) + 1
    return CarriedPast((_remembered(u), *past.us)[:older], fs)


def hand_on(role: Role, new: Tensor, past: CarriedPast, streams: State) -> None:
    """Attach its past to the new state; a repeated block counts its calls, and reports one too many."""
    if not role.last or role.repeats:
        past.version, past.chain, past.place = version_of(new), role.chain, role.place + 1
        past.streams = None if streams is None else without_alias(new, streams)
        setattr(new, PAST, past)


def _remembered(u: State) -> State:
    """Return the state as stored in a past: without gradients an alias, so that the past of the state can be freed.

    A traced graph keeps the state: torch.jit traces with gradients and checks without them, and expects the same graph.
    An alias made by `detach` has no tangent, so in forward mode the state is copied.
    """
    if isinstance(u, Proxy) or (u.requires_grad and torch.is_grad_enabled()):
        return u
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return u
    return u.detach() if only_reverse_mode() else u.clone()


def copied_for_backward(u: State) -> bool:
    """Whether this is the copy of a state that reentrant checkpointing makes in the backward pass."""
    if isinstance(u, Proxy) or torch.compiler.is_compiling() or torch._C._current_graph_task_id() < 0:
        return False
    return bool(u.is_leaf and u.requires_grad)


def without_alias(new: Tensor, streams: State) -> State:
    """Return the streams with a view in place of the state, which carries them and must not refer to itself."""
    return tuple(y.view_as(y) if y is new else y for y in streams) if type(streams) is tuple else streams


def laid_out_like(result: State, new: State) -> State:
    """Return the new state with the dtype and strides of the block's result.

    With another layout the next block may compute in another order and round differently.
    """
    if isinstance(new, Proxy):  # compared at run time, when strides are known
        return new.tracer.create_proxy("call_function", laid_out_like, (result, new), {})
    if result.is_nested or (new.dtype, new.stride()) == (result.dtype, result.stride()):
        return new
    return torch.empty_like(result).copy_(new)


def version_of(u: State) -> int | None:
    """Return the version counter of a tensor, if torch keeps one."""
    if isinstance(u, Proxy) or torch.compiler.is_compiling() or u.is_inference():
        return None
    version: int = u._version
    return version


def overwritten(u: Tensor, version: int | None) -> bool:
    return version is not None and version_of(u) not in (None, version)
