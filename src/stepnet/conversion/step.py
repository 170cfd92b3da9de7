"""A foreign block as one step of a scheme, by a subclass of its class.

    u_{n+1} = after( carry(u_n, u_{n-1}, …) + increment(dt, f, …) ),    f = branch of B,  or  B(u) - u

The past travels with the state: see `carried_past`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.utils.hooks import RemovableHandle

from stepnet.conversion.carried_past import (
    NO_PAST,
    PAST,
    CarriedPast,
    Role,
    copied_for_backward,
    hand_on,
    laid_out_like,
    next_past,
    past_of,
    version_of,
)
from stepnet.conversion.inline import Residual, bound_now
from stepnet.conversion.places import state_in, with_state
from stepnet.conversion.slopes import BranchSlope, KnownSlope, ReversibleSide, StepSlope
from stepnet.conversion.split import Split
from stepnet.conversion.step_coefficients import StepCoefficients, remove_coefficients
from stepnet.conversion.sublayers import run_layer
from stepnet.errors import UserError
from stepnet.nets import (
    BUFFERS,
    KineticCost,
    Memory,
    NetworkStep,
    ReversibleMarch,
    Slopes,
    States,
    add_mixin,
    join_statistics,
    only_reverse_mode,
    remove_mixin,
    separate_statistics,
)
from stepnet.schemes import (
    Coefficient,
    Point,
    State,
    is_number,
    is_traced,
    parts_of,
)


@dataclass
class ForwardPass:
    """Arguments of one forward pass of the network, for its steps."""

    gates: Sequence[Coefficient] | None  # one for each step of the network
    cost: KineticCost | None
    unused: list[nn.Parameter] = field(default_factory=list)  # parameters of dropped blocks


class ConvertedStep(StepCoefficients):
    """The mixin that makes a block a step."""

    step_pass: ForwardPass | None = None
    step_slope: type[StepSlope] = StepSlope  # a lesion study sets another, whose f is dropped

    @property
    def step_cost(self) -> KineticCost | None:
        """The running cost of this pass."""
        return None if self.step_pass is None else self.step_pass.cost

    def step_role_of(self, u: Tensor) -> Role:
        """Return the role of a call with this state, which carries the number of steps before it."""
        if not self.step_role.repeats:
            return self.step_role
        past = getattr(u, PAST, None)
        if isinstance(past, CarriedPast) and past.chain == self.step_role.chain:
            place = past.place
        else:
            place = -1 if copied_for_backward(u) else 0
        for role in self.step_roles:
            if role.place == place:
                return role
        places = ", ".join(str(role.place) for role in self.step_roles)
        raise UserError(
            f"{self.step_role.name!r} takes steps {places} of its chain, as often as it was called on the example, and "
            f"got {'a state without a past' if place < 1 else f'the state of step {place}'}: convert it with an "
            "example that calls it as often, alter no state between; with gradient checkpointing, use_reentrant=False"
        )

    def step_roles_from(self, role: Role) -> list[Role]:
        """Return the steps of a call that begins with this one."""
        last = role.place if role.scheme.splits else role.place + max(role.kinds.count("sum"), 1) - 1
        return [one for one in self.step_roles if role.place <= one.place <= last]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Take one step; other arguments and outputs are those of the block."""
        role = self.step_roles[0]
        u: State = role.argument.of(args, kwargs)  # a tensor, or a proxy of torch.fx
        if role.plain and self.step_pass is None and not isinstance(u, fx.Proxy):
            return self._plain_step(role, u)
        role = self.step_role_of(u)
        if role.kinds:
            return run_layer(self, role, u, args, kwargs)
        # A branch is a function of the state only.
        args, kwargs = role.argument.put(args, kwargs, None) if role.split is None else ((), {})
        if isinstance(self, Residual) and role.memory != "stored":
            args, kwargs = tuple(map(bound_now, args)), {name: bound_now(f) for name, f in kwargs.items()}
        gate, cost = self.step_gate_of(role, u), self.step_cost
        if cost is not None and role.memory == "reversible":
            role = replace(role, memory="recompute")  # a running cost needs every f
        slope = self.step_slope(self, role, args, kwargs)
        step = self._transition_step if role.split is not None and role.transition else self._scheme_step
        new, carried = step(role, u, slope, gate, cost)
        slope.done = True
        streams = None
        if role.scheme.streams:
            streams = self._step_activated(role, new)
            new = role.scheme.read_out(streams)
        if is_number(gate, 0):
            slope.outputs += self._step_dropped(role, u, slope)
        output, new = self._step_output(role, u, new, slope.outputs, gate)
        hand_on(role, new, carried, streams)
        self.step_visit(role, u, new)
        slope.outputs.clear()  # recomputation keeps a reference to the slope
        return output

    def _plain_step(self, role: Role, u: Tensor) -> Tensor:
        """Take a step in which nothing is left to decide, with as little Python as possible: see `Role.plain`."""
        split: Split = role.split  # type: ignore[assignment]
        slope: BranchSlope | KnownSlope
        if role.transition:
            start, f = split.terms(self, u)
            slope, past, k = KnownSlope(f), NO_PAST, None
        else:
            start, slope, past, k = u, BranchSlope(self, split), past_of(role, u), self.step_coefficients_of(role)
        new = role.step.run(slope, (start, *past.us), past.fs, k)
        new, slope_value = new if role.step.keeps_f else (new, None)
        new = split.activation(self, laid_out_like(slope.f, new))
        if not role.last:
            hand_on(role, new, next_past(role, start, slope_value, past), None)
        if "step_watchers" in vars(self):
            self.step_visit(role, u, new)
        return new

    def _transition_step(
        self, role: Role, u: Tensor, slope: StepSlope, gate: Coefficient, cost: KineticCost | None
    ) -> tuple[Tensor, CarriedPast]:
        """Take a transition, `P u + f(u)`; `P u` is the past of the next step."""
        if is_number(gate, 0):
            split = cast(Split, role.split)
            projected, f = split.projection(self, u), None
        else:
            projected, f = slope.terms(u, 0)
            slope.outputs.append(f)
        side = KnownSlope(f)
        new, slope_value = self.step_advance(
            role, side if cost is None else cost.watch(side, role.dt), (projected,), (), None, gate
        )
        return new, next_past(role, projected, slope_value, CarriedPast())

    def _scheme_step(
        self, role: Role, u: Tensor, slope: StepSlope, gate: Coefficient, cost: KineticCost | None
    ) -> tuple[Tensor, CarriedPast]:
        """Take a step of the scheme; in a reversible march, by that march."""
        if role.repeats and role.place == 0 and not torch.compiler.is_compiling():
            setattr(
                u, PAST, CarriedPast(version=version_of(u), chain=role.chain)
            )  # so that a backward pass recognises it
        past = past_of(role, u)
        k = self.step_coefficients_of(role)
        march, exact = self._step_march(role, u)
        if march is None:
            f = slope if cost is None else cost.watch(slope, role.dt)
            new, slope_value = self.step_advance(
                role, f, (u if past.streams is None else past.streams, *past.us), past.fs, k, gate
            )
            return new, next_past(role, u, slope_value, past)
        side = ReversibleSide(slope.module, slope)
        new_exact = march.advance(role.scheme, (Point(exact, side), *map(Point, past.us)), role.dt, k, gate)
        new_exact = march.close(new_exact) if role.last else new_exact
        return march.rounded(new_exact), replace(next_past(role, exact, None, past), march=march, exact=new_exact)

    def step_advance(
        self, role: Role, f: Slopes, us: States, fs: States, k: Coefficient, gate: Coefficient
    ) -> tuple[Tensor, State]:
        """Return `u_{n+1}`, and `f_n` if the scheme reads older f."""
        by_code = is_number(gate, 1) and not is_traced(parts_of(us[0])[0])
        result = role.step.run(f, us, fs, k) if by_code else role.step.interpret(f, us, fs, k, gate)
        return result if role.step.keeps_f else (result, None)

    def _step_output(
        self, role: Role, u: Tensor, new: Tensor, outputs: list[Any], gate: Coefficient
    ) -> tuple[Any, Tensor]:
        """Return the block's output with the new state in it, and the new state."""
        if role.split is not None:
            # with gate 0 the carry may be a tensor that others refer to
            new = new.clone() if is_number(gate, 0) else laid_out_like(outputs[0], new)
            new = new if role.scheme.streams else role.split.activation(self, new)
            return new, new
        new = laid_out_like(state_in(outputs[0], role.result) if outputs else u, new)
        new = new.view_as(new) if new is u else new  # the block returned its input, which belongs to the caller
        return with_state(outputs[0], new, role.result) if outputs else new, new

    def _step_activated(self, role: Role, y: State) -> State:
        """Apply the block's activation to the new streams."""
        return y if role.split is None else role.scheme.activate(partial(role.split.activation, self), y)

    def step_gate_of(self, role: Role, u: Tensor) -> Coefficient:
        """Return the factor of the increment: the gate of this pass, the mean gate in evaluation, or 1."""
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

    def _step_dropped(self, role: Role, u: Tensor, slope: StepSlope) -> list[Any]:
        """Return the outputs of a dropped block; it is called only if it returns more than the state."""
        if self.step_pass is not None:
            self.step_pass.unused += slope.module.parameters()
        if role.split is not None or role.only_output:
            return []
        with torch.no_grad():
            return [slope.block(u, 0)]

    def _step_march(self, role: Role, u: Tensor) -> tuple[ReversibleMarch | None, Tensor]:
        """Return the reversible march of this step, if any, and `u` in that march's precision."""
        stored = not (role.inverted and torch.is_grad_enabled() and only_reverse_mode())
        if stored or is_traced(u):  # a traced graph does not decide what is saved
            return None, u
        past = getattr(u, PAST)
        return (ReversibleMarch(u.dtype), u) if past.march is None else (past.march, past.exact)

    @property
    def memory_in_use(self) -> Memory | None:
        """The memory mode in training; reported by the last step of each stage."""
        return self.step_roles[-1].memory if self.step_roles[-1].last else None

    def network_steps(self) -> Iterator[NetworkStep]:
        """See `Stepped`: one step for each call of the block."""
        for n, role in enumerate(self.step_roles):
            call = f" (call {n + 1})" if role.repeats else role.sublayer
            k = self.step_k_of(role)
            yield NetworkStep("", role.scheme, role.method, role.dt, k, self, role.place, role.chain, call, role)

    def watch_states(self, stages: list[list[Tensor]]) -> RemovableHandle:
        """See `Stepped`."""
        if "step_watchers" not in vars(self):
            vars(self)["step_watchers"] = OrderedDict()
        handle = RemovableHandle(vars(self)["step_watchers"])
        vars(self)["step_watchers"][handle.id] = stages
        return handle

    def step_visit(self, role: Role, u: Tensor, new: Tensor) -> None:
        """Append a new state to the stages whose last state is `u`, of those that are watched."""
        for stages in vars(self).get("step_watchers", {}).values():
            states = next((states for states in stages if states[-1] is u), None)
            if states is None or role.place == 0:
                states = [getattr(new, PAST).us[0] if role.transition else u]
                stages.append(states)
            states.append(new)

    @classmethod
    def step_members(cls, original: type[nn.Module]) -> dict[str, Any]:
        """Override the recomputation of transformers' layers: the step recomputes only the block.

        Up to 5.22 its `__call__` does so, from 5.23 on the `forward` of every subclass.
        """
        recomputing = any(parent.__name__ == "GradientCheckpointingLayer" for parent in original.__mro__)
        return {"__call__": nn.Module.__call__, "forward": cls.forward} if recomputing else {}

    def _get_name(self) -> str:
        return f"{self.step_original.__name__}[{self.step_role.scheme.name}]"


def become_step(block: nn.Module, roles: Sequence[Role]) -> ConvertedStep:
    """Make the block a step, in place, with a role for each of its calls; it has no coefficients yet."""
    step = add_mixin(block, ConvertedStep)
    step.step_roles = tuple(roles)
    separate_statistics(step, max(role.evaluations for role in roles), "step_{}_{}", BUFFERS)
    return step


def become_block(step: ConvertedStep) -> None:
    """Turn the step back into the original block, in place."""
    remove_mixin(step)
    join_statistics(step)
    del step.step_roles
    vars(step).pop("step_watchers", None)
    remove_coefficients(step)
