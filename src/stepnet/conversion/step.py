"""A foreign block as one step of a scheme, by a subclass of its own class.

    u_{n+1} = after( carry(u_n, u_{n-1}, …) + increment(dt, f, …) ),    f = branch of B,  or  B(u) - u

The past travels with the state: `u_n` carries `u_{n-1}` as an attribute of the tensor. Nothing is kept in modules or
in global variables, so threads, re-entrant calls and forwards that raised half-way cannot meet each other's past;
whatever loop the network has around its blocks may stay, and `torch.compile`, `torch.export` and torch.fx trace it
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stepnet.conversion.inline import Residual, bound_now, modules_of
from stepnet.conversion.mixins import InstanceMixin, add_mixin, remove_mixin
from stepnet.conversion.places import FIRST, Argument, Path, state_in, with_state
from stepnet.conversion.split import Split
from stepnet.conversion.statistics import Statistics, at_evaluation, bring_together, keep_apart
from stepnet.errors import UserError
from stepnet.nets import (
    STEP_MIXING,
    Bound,
    CoefficientLayout,
    KineticCost,
    Memory,
    NetworkStep,
    RecordedStep,
    ReversibleMarch,
    States,
    only_reverse_mode,
    recomputed,
    steps_by_stage,
)
from stepnet.schemes import Coefficient, Difference, Point, Scheme, State, StepMethod, is_number, is_traced, parts_of

STEP = "step"
K, K_FREE = "step_k", "step_k_free"  # the parameter's name in the block, without and with a bound: no library uses it
PAST = "_stepnet_past"  # the attribute by which a state carries the states before it


@dataclass(eq=False)
class CarriedPast:
    """What comes before a state. A state that is copied or saved goes without it."""

    us: States = ()  # the states before it, newest first,
    fs: States = ()  # and their slopes, where they are read
    version: int | None = None  # of the state: another one tells that it was altered in place
    row: tuple[str, ...] = ()  # the blocks of the chain,
    place: int = 0  # and how many of its steps made the state
    march: ReversibleMarch | None = None  # that is taken back,
    exact: Tensor | None = None  # and the state as it has it
    streams: State = None  # of which the state was read out

    def __reduce__(self) -> tuple[Any, ...]:
        return (set, ())  # empty, and loadable with weights_only=True: the state may be an output that a caller saves


@dataclass(frozen=True)
class Role:
    """What a call of a block does in its chain of steps."""

    name: str  # its path in the network
    scheme: Scheme
    place: int  # how many steps of the chain come before it
    method: StepMethod  # who takes this step
    step: RecordedStep  # its arithmetic
    argument: Argument  # where the block takes the state,
    result: Path = FIRST  # and where it returns the new one,
    alone: bool = True  # or nothing but the new one
    last: bool = False  # the chain ends here: nobody needs a past any more
    row: tuple[str, ...] = ()  # the blocks of the chain, in order
    split: Split | None = None  # branch, shortcut and activation, where they are known
    overwrites: bool = False  # works in place on its input, and so gets a copy
    memory: Memory = "stored"  # what a gradient keeps: see `stepnet.nets.memory_modes`
    keeps_f: bool = False  # later steps read this step's f
    evaluations: int = 1  # of the block in this step
    own_k: int | None = None  # which of the block's coefficients is this step's
    number: int = 0  # how many steps of the network come before it
    mean_gate: float | None = None  # of stochastic depth: the gate of evaluation
    bound: Bound | None = None  # the interval in which k is kept

    @property
    def dt(self) -> float:
        """The weight of f."""
        dt: float = self.step.dt
        return dt

    @property
    def repeats(self) -> bool:
        """Whether a block of the chain comes more than once in it."""
        return len(set(self.row)) < len(self.row)

    @property
    def transition(self) -> bool:
        """Whether it changes the shape: it hands over the projected input."""
        return self.method == "transition"

    @property
    def taken_back(self) -> bool:
        """Whether the scheme's inverse undoes it: a step without its whole past cannot be taken back."""
        return self.memory == "reversible" and self.method == "scheme"


@dataclass
class ForwardPass:
    """What the caller of a network passes to the steps of one forward pass."""

    gates: Sequence[Coefficient] | None  # one for each step of the network
    cost: KineticCost | None
    unused: list[nn.Parameter] = field(default_factory=list)  # of the blocks that were dropped


class ConvertedStep(InstanceMixin):
    """What the subclass adds to a block's class."""

    step_pass: ForwardPass | None = None

    step_roles: tuple[Role, ...]  # one for each call of the block in its chain
    step_layout: CoefficientLayout | None = None  # of the coefficients that have names

    @property
    def step_role(self) -> Role:
        """What the first call does; the calls of a block differ in their place and their coefficient only."""
        return self.step_roles[0]

    def role_of(self, u: Tensor) -> Role:
        """What a call with this state does: the state knows how many steps made it."""
        if len(self.step_roles) == 1:
            return self.step_roles[0]
        past = getattr(u, PAST, None)
        if isinstance(past, CarriedPast) and past.row == self.step_role.row:
            place = past.place
        else:
            place = -1 if _copied_for_backward(u) else 0
        for role in self.step_roles:
            if role.place == place:
                return role
        places = ", ".join(str(role.place) for role in self.step_roles)
        raise UserError(
            f"{self.step_role.name!r} takes steps {places} of its row, as often as it was called on the example, and "
            f"got {'a state without a past' if place < 1 else f'the state of step {place}'}: convert it with an "
            "example that calls it as often, alter no state between; with gradient checkpointing, use_reentrant=False"
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """One step; arguments and outputs beside the state are those of the block."""
        u = self.step_role.argument.of(args, kwargs)
        role = self.role_of(u)
        # A branch is a function of the state alone.
        args, kwargs = role.argument.put(args, kwargs, None) if role.split is None else ((), {})
        if isinstance(self, Residual) and role.memory != "stored":
            args, kwargs = tuple(map(bound_now, args)), {name: bound_now(f) for name, f in kwargs.items()}
        if is_traced(u):
            _check_recordable(self)
        gate, cost = self._gate(role, u), None if self.step_pass is None else self.step_pass.cost
        if cost is not None and role.memory == "reversible":
            role = replace(role, memory="recompute")  # a cost reads every f
        slope = _Slope(self, role, args, kwargs)
        step = self._transition if role.split is not None and role.transition else self._step
        new, carried = step(role, u, slope, gate, cost)
        slope.done = True
        streams = None
        if role.scheme.streams:
            streams = self._activated(role, new)
            new = role.scheme.read_out(streams)
        if is_number(gate, 0):
            slope.outputs += self._dropped(role, u, args, kwargs)
        output, new = self._output(role, u, new, slope.outputs, gate)
        if not role.last or role.repeats:  # one call more than there were on the example is an error
            carried.version, carried.row, carried.place = _version(new), role.row, role.place + 1
            carried.streams = None if streams is None else _apart_from(new, streams)
            setattr(new, PAST, carried)
        slope.outputs.clear()  # a repetition holds on to it
        return output

    def _transition(
        self, role: Role, u: Tensor, slope: _Slope, gate: Coefficient, cost: KineticCost | None
    ) -> tuple[Tensor, CarriedPast]:
        """`P u + f(u)`, with `P u` as the past of the next step."""
        if is_number(gate, 0):
            split = cast(Split, role.split)
            projected, f = split.projection(self, u), None
        else:
            projected, f = self._terms(role, u, 0)
            slope.outputs.append(f)
        side = _Known(f)
        new, own = self._take(role, side if cost is None else cost.watch(side, role.dt), (projected,), (), None, gate)
        return new, _carried(role, projected, own, CarriedPast())

    def _step(
        self, role: Role, u: Tensor, slope: _Slope, gate: Coefficient, cost: KineticCost | None
    ) -> tuple[Tensor, CarriedPast]:
        """The new state; by the march that is taken back, where this is a step of one."""
        if role.repeats and role.place == 0 and not torch.compiler.is_compiling():
            setattr(u, PAST, CarriedPast(version=_version(u), row=role.row))  # known again in a backward pass
        past = _past(role, u)
        k = self.coefficients_of(role)
        march, exact = self._march(role, u)
        if march is None:
            f = slope if cost is None else cost.watch(slope, role.dt)
            new, own = self._take(role, f, (u if past.streams is None else past.streams, *past.us), past.fs, k, gate)
            return new, _carried(role, u, own, past)
        side = _Side(self._evaluated(*slope.args, *slope.kwargs.values()), slope)
        new_exact = march.advance(role.scheme, (Point(exact, side), *map(Point, past.us)), role.dt, k, gate)
        new_exact = march.close(new_exact) if role.last else new_exact
        return march.rounded(new_exact), replace(_carried(role, exact, None, past), march=march, exact=new_exact)

    def _take(
        self, role: Role, f: Callable[..., Any], us: States, fs: States, k: Coefficient, gate: Coefficient
    ) -> tuple[Tensor, State]:
        """`u_{n+1}`, and `f_n` where the scheme reads older slopes."""
        gated = role.mean_gate is not None or (self.step_pass is not None and self.step_pass.gates is not None)
        taken = (
            role.step.interpret(f, us, fs, k, gate)
            if gated or is_traced(parts_of(us[0])[0])
            else role.step.run(f, us, fs, k)
        )
        return taken if role.step.keeps_f else (taken, None)

    def _output(self, role: Role, u: Tensor, new: Tensor, outputs: list[Any], gate: Coefficient) -> tuple[Any, Tensor]:
        """What the block returns, with the new state in it; and that state."""
        if role.split is not None:
            # a state that others hold may be carried
            new = new.clone() if is_number(gate, 0) else _laid_out_like(outputs[0], new)
            new = new if role.scheme.streams else role.split.activation(self, new)
            return new, new
        new = _laid_out_like(state_in(outputs[0], role.result) if outputs else u, new)
        new = new.view_as(new) if new is u else new  # a block that returned its input, the caller's tensor
        return with_state(outputs[0], new, role.result) if outputs else new, new

    def _activated(self, role: Role, y: State) -> State:
        """The new streams behind the block's activation."""
        return y if role.split is None else role.scheme.activate(partial(role.split.activation, self), y)

    def _gate(self, role: Role, u: Tensor) -> Coefficient:
        """What multiplies the increment: given for this pass, or the mean of stochastic depth in evaluation, or 1."""
        gates = None if self.step_pass is None else self.step_pass.gates
        if gates is None and role.mean_gate is not None and self.training:
            raise UserError(
                f"step {role.name!r} has stochastic depth, and was called in training without a gate: call the whole "
                "network, which draws them; memory='recompute' takes the place of gradient checkpointing"
            )
        if gates is None:
            return 1 if role.mean_gate is None else role.mean_gate
        gate = gates[role.number]
        if not isinstance(gate, Tensor) or not gate.ndim:
            return gate
        if gate.numel() not in (1, len(u)):
            raise UserError(
                f"{gate.numel()} gates for a state of shape {tuple(u.shape)} in {role.name!r}: gates for each sample "
                "need states whose first dimension is the batch; take mode='batch'"
            )
        return gate.to(u).reshape(-1, *[1] * (u.ndim - 1))

    def _dropped(self, role: Role, u: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The outputs of a block whose f is not wanted: only those beside its state have to be computed."""
        if self.step_pass is not None:
            self.step_pass.unused += self._evaluated(*args, *kwargs.values()).parameters()
        if role.split is not None or role.alone:
            return []
        with torch.no_grad():
            return [self._block(role, u, 0, args, kwargs)]

    def _march(self, role: Role, u: Tensor) -> tuple[ReversibleMarch | None, Tensor]:
        """The march of which this is a step that can be taken back, and `u` as it has it."""
        stored = not (role.taken_back and torch.is_grad_enabled() and only_reverse_mode())
        if stored or is_traced(u):  # a graph says what is computed; what to keep of it is for whoever runs it
            return None, u
        past = getattr(u, PAST)
        return (ReversibleMarch(u.dtype), u) if past.march is None else (past.march, past.exact)

    def _terms(self, role: Role, v: Tensor, i: int) -> tuple[Tensor, Tensor]:
        """`(P v, f(v))` of a block that is split."""
        split = cast(Split, role.split)
        terms: tuple[Tensor, Tensor] = self._recomputed(role, self._evaluation(role, i, partial(split.terms, self)), v)
        return terms

    def _block(self, role: Role, v: Tensor, i: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`B(v)` as the network calls it, with the state put among its other arguments."""
        if i > 0 and any(map(_is_cache, (*args, *kwargs.values()))):
            raise UserError(
                f"scheme {role.scheme.name!r} evaluates {role.name!r} more than once in a step, "
                "and its cache holds one evaluation: call the network with use_cache=False"
            )
        v = v.clone() if role.overwrites else v
        version = _version(v)
        own = getattr(self, "gradient_checkpointing", False) and self.training  # transformers' own recomputation
        again: Callable[..., Any] = (
            self.__dict__["_gradient_checkpointing_func"] if own else partial(self._recomputed, role)
        )
        if own or (role.memory != "stored" and torch.is_grad_enabled()):  # a cache would be written to twice
            args = tuple(None if _is_cache(value) else value for value in args)
            kwargs = {key: None if _is_cache(value) else value for key, value in kwargs.items()}

        def block(v: Tensor, *args: Any) -> Any:
            placed, named = role.argument.put(args, kwargs, v)
            return self.original.forward(self, *placed, **named)

        output = again(self._evaluation(role, i, block), v, *args)
        if not role.overwrites and _rewritten(v, version):
            raise UserError(
                f"step {role.name!r} overwrote its state, which it did not on the example, and the scheme "
                "still needs it: make the block work out of place"
            )
        return output

    def _evaluation(self, role: Role, i: int, f: Callable[..., Any]) -> Callable[..., Any]:
        return partial(at_evaluation, i, f) if role.evaluations > 1 else f

    def _recomputed(self, role: Role, f: Callable[..., Any], *args: Any) -> Any:
        kept = role.memory == "stored" or role.taken_back or is_traced(args[0])
        return f(*args) if kept else recomputed(f, self._evaluated(*args), *args)

    def _evaluated(self, *args: Any) -> nn.Module:
        """The module that an evaluation of f runs: the block, or what a `Residual` is called with."""
        return nn.ModuleList(part for f in args for part in modules_of(f)) if isinstance(self, Residual) else self

    @property
    def memory_in_use(self) -> Memory | None:
        """The mode of a training step, as the last step of each stage reports it."""
        return self.step_roles[-1].memory if self.step_roles[-1].last else None

    @property
    def _ks(self) -> Tensor | None:
        """The coefficients of the block's steps that own one."""
        bound = self.step_role.bound
        free = getattr(self, K_FREE, None)
        return getattr(self, K, None) if bound is None or free is None else bound.k(free)

    def coefficients_of(self, role: Role) -> Coefficient:
        """What a step takes as its k: a tensor, several by their names, or the scheme's own."""
        layout = self.step_layout
        if layout is not None and role.own_k is not None:
            return layout.by_step(self._stored)[role.own_k]
        return self.k_of(role) if role.scheme.trainable else role.scheme.k

    def _stored(self, name: str) -> Tensor:
        value: Tensor = getattr(self, STEP_MIXING + name)
        return value

    def k_of(self, role: Role) -> Tensor | None:
        """The coefficient of a step, if it owns one."""
        ks = self._ks
        return None if ks is None or role.own_k is None else ks[role.own_k : role.own_k + 1]

    def named_coefficients(self) -> Iterator[tuple[str, Tensor]]:
        """The `k` of each step that owns one; numbered, where the block is called several times."""
        if self.step_layout is not None:
            for n, name, value in self.step_layout.named(self._stored):
                own = self.step_layout.owners.index(n)
                yield f"{STEP if len(self.step_roles) == 1 else f'{STEP}.{own}'}:{name}", value
        for role in self.step_roles:
            if (k := self.k_of(role)) is not None:
                yield K if len(self.step_roles) == 1 else f"{K}.{role.own_k}", k

    def network_steps(self) -> Iterator[NetworkStep]:
        """See `Stepped`: one step for each call of the block."""
        for n, role in enumerate(self.step_roles):
            call = n + 1 if len(self.step_roles) > 1 else 0
            k = self.k_of(role)
            yield NetworkStep("", role.scheme, role.method, role.dt, k, self, role.place, role.row, call, role)

    def watch_states(self, stages: list[list[Tensor]]) -> RemovableHandle:
        """See `Stepped`: the new state is appended to the stage whose last state is the input."""

        def note(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
            u, new = self.step_role.argument.of(args, options), state_in(output, self.step_role.result)
            role = self.role_of(u)
            states = next((states for states in stages if states[-1] is u), None)
            if states is None or role.place == 0:
                states = [getattr(new, PAST).us[0] if role.transition else u]
                stages.append(states)
            states.append(new)

        return self.register_forward_hook(note, with_kwargs=True)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool, missing: list[str],
        unexpected: list[str], errors: list[str],
    ) -> None:  # fmt: skip
        """As the block's; a checkpoint of the original network has no `k` and leaves ours as it is."""
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)
        ours = [name for name in missing if name in (prefix + K, prefix + K_FREE)]
        ours += [name for name in missing if name.startswith(prefix + STEP_MIXING)]
        for name in ours:
            missing.remove(name)

    @classmethod
    def members(cls, original: type[nn.Module]) -> dict[str, Any]:
        """A layer of transformers may recompute itself when called; the step recomputes the block alone.

        Up to 5.22 its `__call__` does so, from 5.23 on the `forward` of every subclass.
        """
        recomputing = any(parent.__name__ == "GradientCheckpointingLayer" for parent in original.__mro__)
        return {"__call__": nn.Module.__call__, "forward": cls.forward} if recomputing else {}

    def _get_name(self) -> str:
        return f"{self.original.__name__}[{self.step_role.scheme.name}]"


class _Slope:
    """`f(v, i)` of one call of a step, and what its block, or its branch, returned."""

    def __init__(self, step: ConvertedStep, role: Role, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.step, self.role, self.args, self.kwargs = step, role, args, kwargs
        self.outputs: list[Any] = []
        self.done = False  # what is evaluated later is evaluated again, and its outputs are not wanted

    def __call__(self, v: State, i: int) -> State:
        role = self.role
        if role.split is not None:
            output = self.step._terms(role, v, i)[1]
        else:
            output = self.step._block(role, v, i, self.args, self.kwargs)
        if not self.done:
            self.outputs.append(output)
        return output if role.split is not None else Difference(state_in(output, role.result), v)


@dataclass(frozen=True)
class _Known:
    """A slope that was evaluated already."""

    f: State

    def __call__(self, v: State, i: int) -> State:
        return self.f


@dataclass(frozen=True)
class _Side:
    """`f` of a step whose evaluation is repeated; `B(v) - v` is formed in double precision, in which it is exact."""

    module: nn.Module
    slope: _Slope

    def __call__(self, v: Tensor, c: Coefficient, i: int) -> Tensor:
        value = self.slope(v, i)
        f: Tensor = value.end.double() - value.start.double() if isinstance(value, Difference) else value
        return f


def become_step(block: nn.Module, roles: Sequence[Role], k: Tensor | None) -> None:
    """Make the block a step, in place: one for each of its calls, with the coefficients of those that own one."""
    add_mixin(block, ConvertedStep)
    block.step_roles = tuple(roles)  # type: ignore[assignment]
    keep_apart(block, max(role.evaluations for role in roles))
    bound = roles[0].bound
    if k is not None and bound is None:
        block.register_parameter(K, nn.Parameter(k))
    elif k is not None and bound is not None:
        block.register_parameter(K_FREE, nn.Parameter(bound.free(k)))


def hold_named(block: nn.Module, layout: CoefficientLayout, starts: dict[str, Tensor]) -> None:
    """Give a step its coefficients that have names."""
    block.step_layout = layout  # type: ignore[assignment]
    for name, start in starts.items():
        block.register_parameter(STEP_MIXING + name, nn.Parameter(start))


def converted_rows(model: nn.Module) -> list[list[tuple[str, ConvertedStep, Role]]]:
    """The chains of a converted network: the path, the block and the role of each step, in order."""
    stages = (stage for stage in steps_by_stage(model) if stage[0].role is not None)
    return [[(step.path, cast(ConvertedStep, step.block), step.role) for step in stage] for stage in stages]


def become_block(step: ConvertedStep) -> None:
    """Make the step the block that it was, in place."""
    remove_mixin(step)
    bring_together(step)
    del step.step_roles
    vars(step).pop("step_layout", None)
    named = [name for name in step._parameters if name.startswith(STEP_MIXING)]
    for name in (K, K_FREE, *named):
        step._parameters.pop(name, None)


def _check_recordable(step: ConvertedStep) -> None:
    """torch.fx records which layers are called, not which evaluation of the step they are in."""
    if any(isinstance(layer, Statistics) for layer in step.modules()):
        raise UserError(
            f"torch.fx cannot record scheme {step.step_role.scheme.name!r} in {step.step_role.name!r}, whose batch "
            "norm has statistics for each of its evaluations: use torch.export"
        )


def _past(role: Role, u: Tensor) -> CarriedPast:
    """What `u_n` carries of the states before it."""
    needed = role.place if role.scheme.whole_past else min(role.place, role.scheme.steps - 1)
    streams = bool(role.scheme.streams) and role.place > 0
    if not needed and not streams:
        return CarriedPast()
    past = getattr(u, PAST, None)
    if isinstance(past, CarriedPast) and streams:
        past = replace(past, us=()) if past.streams is not None else None
    if not isinstance(past, CarriedPast) or len(past.us) != needed or _rewritten(u, past.version):
        raise UserError(
            f"step {role.name!r} of scheme {role.scheme.name!r} got a state that its run did not make, and so has no "
            "past: call the whole network, alter or clone no state between its steps (captum clones: name a whole "
            "stage), put no full backward hook on a step; with gradient checkpointing, choose use_reentrant=False"
        )
    return past


def _copied_for_backward(u: Tensor) -> bool:
    """Whether a backward pass calls the block again with a copy of its state, as reentrant checkpointing does."""
    if is_traced(u) or torch.compiler.is_compiling() or torch._C._current_graph_task_id() < 0:
        return False
    return u.is_leaf and u.requires_grad


def _laid_out_like(own: Tensor, new: Tensor) -> Tensor:
    """The new state with the type and the strides of the block's own result.

    The next block may compute in another order, and so round differently, where the layout differs.
    """
    if is_traced(new):  # compared when there are strides to see
        return cast(Tensor, new.tracer.create_proxy("call_function", _laid_out_like, (own, new), {}))
    if own.is_nested or (new.dtype, new.stride()) == (own.dtype, own.stride()):
        return new
    return torch.empty_like(own).copy_(new)


def _carried(role: Role, u: Tensor, f: State, past: CarriedPast) -> CarriedPast:
    """What later steps read: the states up to `u_n`, and their slopes where they read them."""
    if role.last:
        return CarriedPast()
    older = role.scheme.steps - 1
    fs = (f, *past.fs)[:older] if role.keeps_f else ()
    if role.scheme.whole_past or (role.transition and role.scheme.streams):
        older = len(past.us) + 1
    return CarriedPast((_remembered(u), *past.us)[:older], fs)


def _apart_from(new: Tensor, streams: State) -> State:
    """The streams, none of them the state itself, which carries them."""
    return tuple(y.view_as(y) if y is new else y for y in streams) if type(streams) is tuple else streams


def _remembered(u: Tensor) -> Tensor:
    """A state as later steps read it. Without gradients it is an alias, so that its own past can go.

    A graph has no past to let go: torch.jit traces with gradients, checks without them, and wants the same one. An
    alias by `detach` has no tangent: in forward mode the state is copied.
    """
    graph = is_traced(u) or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if graph or (torch.is_grad_enabled() and u.requires_grad):
        return u
    return u.detach() if only_reverse_mode() else u.clone()


def _version(u: Tensor) -> int | None:
    """How often a tensor was written to, where torch counts it."""
    return None if is_traced(u) or torch.compiler.is_compiling() or u.is_inference() else u._version


def _rewritten(u: Tensor, version: int | None) -> bool:
    return None not in (version, _version(u)) and version != _version(u)


def _is_cache(value: object) -> bool:
    """Whether an argument is transformers' store of keys and values, into which a block writes."""
    return type(value).__name__.endswith("Cache")
