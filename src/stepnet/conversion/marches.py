"""The marches of a network as evaluations in autograd's graph: where each block reads, and what it adds.

Our stages and converted chains are observed by hooks. In other networks the residual blocks are those that `convert`
finds, and what they add is read from the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from stepnet.conversion.autograd_graph import GraphPlace
from stepnet.conversion.carried_past import Role
from stepnet.conversion.chains import Blocks, blocks_among, candidates, named_blocks
from stepnet.conversion.example import Example, on_example, with_gradient
from stepnet.conversion.step import ConvertedStep, ForwardPass
from stepnet.conversion.stream import (
    Weight,
    arrivals,
    before_activation,
    branches,
    edge_of,
    origin_of,
    parameters_of,
    shortcut_of,
)
from stepnet.conversion.trace import Call, trace
from stepnet.errors import UserError, first_line
from stepnet.nets import Coupling, KineticCost, NetworkStep, Stage, Stepped, entry_of, steps_by_stage
from stepnet.schemes import (
    Coefficient,
    Difference,
    Entry,
    MarchShape,
    Scheme,
    State,
    Weights,
    as_channels,
    impulse_response,
    parts_of,
)


@dataclass
class Evaluation:
    """One evaluation of a block: where it reads the stream, and what it adds."""

    name: str
    read: GraphPlace | None  # None if that has another shape
    made: list[GraphPlace]
    total: GraphPlace | None = None  # the stream after it
    whole: bool = False  # what was made is B(u), and the block adds B(u) - u


@dataclass
class Declared:
    """What one of our stages, or a converted chain, declares."""

    scheme: Scheme
    layout: MarchShape
    dts: Sequence[float]
    ks: list[Coefficient]
    gates: list[Coefficient] | None

    def response(self) -> Weights | None:
        """Return the weights that the declaration implies; None if streams are activated, or weights vary with them."""
        varies = any(one.varies for one in self.scheme.learned)
        if varies or (self.scheme.streams and self.layout.activated):
            return None
        ks = self.ks if self.scheme.trainable else None
        return impulse_response(self.scheme, self.layout, list(self.dts), ks, self.gates)


@dataclass
class ObservedMarch:
    """The evaluations of one stage, in order, its first states and its last."""

    evaluations: list[Evaluation] = field(default_factory=list)
    starts: list[GraphPlace] = field(default_factory=list)
    ends: list[GraphPlace] = field(default_factory=list)
    states: list[GraphPlace] | None = None  # u_1 … u_N, where they are known
    declared: Declared | None = None
    note: str = ""  # why it starts here

    @property
    def settled(self) -> list[GraphPlace]:
        """The states that an activation may have replaced: all, or those that blocks read."""
        if self.states is not None:
            return self.states
        return [e.read for e in self.evaluations[1:] if e.read is not None]

    def layout(self, activated: bool) -> MarchShape:
        """Return the shape of the march, with one step for each evaluation."""
        return MarchShape(
            len(self.evaluations), "projected" if self.evaluations[0].read is None else "identity", activated
        )


def weights_at(place: GraphPlace, columns: Sequence[Sequence[GraphPlace]]) -> list[Weight]:
    """Return the weight of each column at a place; None if the branches of a block arrive with different weights."""
    arriving = iter(arrivals(place, [source for column in columns for source in column]))
    row: list[Weight] = []
    for column in columns:
        weights = [next(arriving) for _ in column]
        first = weights[0]
        same = all(w is not None and first is not None and np.allclose(w, first, atol=1e-6) for w in weights)
        row.append(first if same else None)
    return row


class _EvaluationRecorder(KineticCost):
    """Record every evaluation of our stages and of converted chains."""

    def __init__(self) -> None:
        super().__init__()
        self.marches: list[ObservedMarch] = []
        self.names: Iterator[str] = iter(())  # of the steps that the block under way takes
        self.transition = False

    def stage(self, name: str, stage: Stage) -> ExitStack:
        """Register hooks on one of our stages and on its blocks."""
        hooks = ExitStack()

        def begin(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            arguments = dict(zip(("x", "past", "gates", "ks"), args, strict=False)) | kwargs
            declared = _declared_by(stage, arguments.get("gates"), arguments.get("ks"))
            self.marches.append(ObservedMarch(declared=declared))

        hooks.enter_context(stage.register_forward_pre_hook(begin, with_kwargs=True))
        for step, block in zip(stage.step_names, stage.steps, strict=True):
            sides = [("", block)] if not isinstance(block, Coupling) else [(".f", block.f), (".g", block.g)]
            for part, side in sides:
                foreign = step == "transition" and part != ".g"
                hooks.enter_context(side.register_forward_hook(self._evaluated(f"{name}.{step}{part}", foreign)))
        past = None if stage.transition is None else stage.transition.project_past
        if past is not None:
            hooks.enter_context(
                past.register_forward_hook(lambda m, a, out: self.marches[-1].starts.append(edge_of(out)))
            )
        return hooks

    def _evaluated(self, name: str, foreign: bool) -> Any:
        def seen(module: nn.Module, args: tuple[Any, ...], output: Tensor | Difference) -> None:
            self.add(name, None if foreign else args[0], output)

        return seen

    def add(self, name: str, u: Tensor | None, f: Tensor | Difference) -> None:
        """Add an evaluation to the current stage."""
        whole = isinstance(f, Difference)
        made = [edge_of(f.end if isinstance(f, Difference) else f)]
        self.marches[-1].evaluations.append(Evaluation(name, None if u is None else edge_of(u), made, whole=whole))

    def step(self, name: str, step: ConvertedStep) -> ExitStack:
        """Register hooks on a converted step."""
        hooks = ExitStack()

        def begin(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            role = step.step_role_of(step.step_role.argument.of(args, kwargs))
            parts = [".f", ".g"] if role.scheme.splits else [one.sublayer for one in step.step_roles_from(role)]
            self.names = iter([name + part for part in parts])
            self.transition = role.transition
            if role.place == 0:
                self.marches.append(ObservedMarch())

        hooks.enter_context(step.register_forward_pre_hook(begin, with_kwargs=True))
        step.step_roles = tuple(replace(role, memory="stored") for role in step.step_roles)
        step.step_pass = ForwardPass(None, self)
        return hooks

    def watch(self, f: Callable[..., State], dt: float) -> Callable[..., State]:
        name, projected = next(self.names), self.transition

        def watched(u: State, *place: Any) -> State:
            slope = f(u, *place)
            self.add(name, None if projected else u, slope)
            return slope

        return watched


def own_marches(network: nn.Module, example: Any) -> list[ObservedMarch]:
    """Return the marches of our stages and of converted chains, observed in one run."""
    recorder, states = _EvaluationRecorder(), list[list[State]]()
    with ExitStack() as hooks:
        for name, module in network.named_modules():
            if isinstance(module, Stage):
                hooks.enter_context(recorder.stage(name, module))
            elif isinstance(module, ConvertedStep):
                hooks.enter_context(recorder.step(name, module))
            if isinstance(module, Stepped):
                hooks.enter_context(module.watch_states(states))
        _run(network, example)
    chains = [steps for steps in steps_by_stage(network) if steps[0].role is not None]
    for steps, march in zip(chains, recorder.marches, strict=False):
        march.declared = _declared_by_chain(steps)
    for march, seen in zip(recorder.marches, states, strict=True):
        march.starts = [edge_of(part) for part in parts_of(seen[0])] + march.starts
        march.ends = [edge_of(part) for part in parts_of(seen[-1])]
        march.states = [edge_of(part) for u in seen[1:] for part in parts_of(u)]
    return recorder.marches


def _declared_by(stage: Stage, gates: Any, ks: Any) -> Declared:
    ks = [k if k is None else as_channels(k) for k in stage.ks()] if ks is None else list(ks)
    layout = MarchShape(stage.depth, entry_of(stage.transition), stage.after is not None)
    return Declared(stage.scheme, layout, stage.dts, ks, None if gates is None else [as_channels(g) for g in gates])


def _declared_by_chain(steps: Sequence[NetworkStep]) -> Declared:
    roles: list[Role] = [step.role for step in steps]
    blocks = [cast(ConvertedStep, step.block) for step in steps]
    ks = [
        None if role.k_index is None else as_channels(block.step_coefficients_of(role))
        for block, role in zip(blocks, roles, strict=True)
    ]
    gates = [1.0 if role.mean_gate is None else role.mean_gate for role in roles]
    entry: Entry = "projected" if roles[0].transition else "identity"
    layout = MarchShape(len(steps), entry, any(role.activated for role in roles))
    return Declared(roles[0].scheme, layout, [role.dt for role in roles], ks, gates)


def _run(network: nn.Module, example: Any) -> None:
    """Call the network once; inputs require a gradient, so that autograd records what is done with them."""

    def call(example: Example) -> None:
        args, kwargs = with_gradient(example)
        try:
            with torch.enable_grad():
                network(*args, **kwargs)
        except Exception as error:
            raise UserError(f"the network cannot run on the example: {first_line(error)}") from error

    on_example(network, example, call)


def found_marches(network: nn.Module, example: Any, blocks: Blocks | None) -> list[ObservedMarch]:
    """Return the marches of a network without a scheme of ours, read from the graph of one run."""
    watched = candidates(network) if blocks is None else named_blocks(network, blocks)
    calls, _ = blocks_among(trace(network, example, watched, gradient=True), named=blocks is not None)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    marches: list[ObservedMarch] = []
    shape: tuple[int, ...] | None = None
    for call in calls:
        if call.transition and (entry := shortcut_of(call.places[1], call.places[0])) is not None:
            shortcut, branch = entry
            evaluation = Evaluation(call.name, None, [branch.made], branch.total)
            marches.append(ObservedMarch([evaluation], [shortcut]))
        else:
            for evaluation in _evaluations(call, names):
                _append(marches, evaluation, same_shape=shape == tuple(call.after.shape))
                shape = tuple(call.after.shape)
        shape = tuple(call.after.shape)
    for march in marches:
        last = march.evaluations[-1].total
        march.ends = [] if last is None else [last]
    return marches


def _append(marches: list[ObservedMarch], evaluation: Evaluation, same_shape: bool) -> None:
    """Add an evaluation to the current march, or start another if its input is not a linear combination of that."""
    read = cast(GraphPlace, evaluation.read)
    note = "" if not marches or same_shape else "at another shape"
    if marches and same_shape:
        march, before = marches[-1], before_activation(read)
        settled = [[place] for place in march.settled if before_activation(place) is not None]
        columns = [[start] for start in march.starts] + [e.made for e in march.evaluations] + settled
        row = weights_at(before or read, columns)
        linear = all(weight is not None for weight in row)
        alike = len(march.evaluations) == 1 or bool(settled) == (before is not None)
        if linear and alike and any(weight is not None and weight.any() for weight in row):
            march.evaluations.append(evaluation)
            return
        note = (
            "nothing arrives from the blocks before it"
            if linear and alike
            else "not linear behind the blocks before it"
        )
    marches.append(ObservedMarch([evaluation], [origin_of(read)], note=note))


def _evaluations(call: Call, names: dict[int, str]) -> list[Evaluation]:
    """Return the evaluations of a call: one for each place that its branches read, or one for its whole output."""
    before, after = call.places
    if not call.holds_input:
        return [Evaluation(call.name, before, [after])]
    by_place: dict[GraphPlace, Evaluation] = {}
    for branch in branches(after, before):
        read = branch.read or before
        evaluation = by_place.setdefault(read, Evaluation(_name(call, branch.made, before, names), read, []))
        evaluation.made.append(branch.made)
        evaluation.total = branch.total
    if len(by_place) == 1:
        next(iter(by_place.values())).name = call.name
    return list(by_place.values())


def _name(call: Call, made: GraphPlace, before: GraphPlace, names: dict[int, str]) -> str:
    """Return the block's name, followed by that of the submodule with the nearest parameter."""
    for parameter in parameters_of(made, before):
        inner = names.get(id(parameter), "").removeprefix(f"{call.name}.")
        if inner and inner != names.get(id(parameter)):
            return f"{call.name}.{inner.partition('.')[0]}"
    return call.name
