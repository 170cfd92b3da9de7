"""Make each residual sum inside a layer's forward a step.

A transformer's layer adds its branches one after the other, in one `forward`:

    u = u + attention(norm(u))
    u = u + mlp(norm(u))

The layer's code is not changed. While it runs, a `TorchFunctionMode` sees the functions that read the state; where the
layer adds to it, the scheme computes the next state. Which function does what (`Kind`) is read from autograd's graph
of the example, once: a later call that reads its state otherwise is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from torch import Tensor
from torch.overrides import TorchFunctionMode

from stepnet.conversion.autograd_graph import GraphPlace, place_of
from stepnet.conversion.carried_past import CarriedPast, Role, hand_on, laid_out_like, next_past, past_of
from stepnet.conversion.places import state_in
from stepnet.conversion.slopes import StepSlope, refuse_cache
from stepnet.conversion.stream import AddedTerm, branches
from stepnet.errors import UserError
from stepnet.nets import KineticCost
from stepnet.schemes import Coefficient, Difference, State, is_number, is_traced

if TYPE_CHECKING:
    from stepnet.conversion.step import ConvertedStep
    from stepnet.conversion.trace import Call

Kind: TypeAlias = Literal[
    "sum",  # adds the last branch of a step
    "term",  # adds a branch that is not the last: of u + attention(u) + mlp(u), the first sum
    "norm",  # follows the sum, and makes the state (post-norm)
    "branch",  # belongs to a branch: the norm before attention, a position embedding
]
IN_PLACE = {"add_", "addcmul_"}
SUMS = {"add", "addcmul"} | IN_PLACE
NORMS = {"layer_norm", "group_norm", "batch_norm", "relu"}  # and what else may follow a sum


class StateRead(NamedTuple):
    """A call of a function that may read the state."""

    function: str
    arguments: tuple[Any, ...]
    result: Tensor
    place: GraphPlace  # of the result


def as_state_read(function: Callable[..., Any], args: tuple[Any, ...], result: Any) -> StateRead | None:
    """Return the call of a sum or a norm, for `kinds_of`; None for other functions."""
    name = getattr(function, "__name__", "")
    return StateRead(name, args, result, place_of(result)) if name in SUMS | NORMS else None


def sublayers(call: Call) -> list[Call]:
    """Return one call for each step of a layer, or the call itself if it adds one branch."""
    if not call.reads or not call.holds_input or call.split is not None:
        return [call]
    before, after = call.places
    groups: list[list[AddedTerm]] = []  # terms that are computed from the same state are one step
    for term in branches(after, before):
        if groups and groups[-1][0].read == term.read:
            groups[-1].append(term)
        else:
            groups.append([term])
    if len(groups) < 2:
        return [call]
    kinds = kinds_of(call, groups)
    return [replace(call, kinds=kinds, part=part) for part in range(len(groups))]


def two_branches(call: Call) -> list[Call]:
    """Return the call of a layer that adds two branches, one after the other, as one step; nothing for other layers."""
    try:
        steps = sublayers(call)
    except UserError:  # its state cannot be followed
        return []
    return [replace(steps[0], part=None)] if len(steps) == 2 and "norm" not in steps[0].kinds else []


def kinds_of(call: Call, groups: Sequence[Sequence[AddedTerm]]) -> tuple[Kind, ...]:
    """Return what each function does that reads the state, in the order of their calls."""
    states = [*(group[0].read for group in groups[1:]), call.places[1]]  # what the next step starts from
    kinds: list[Kind] = []
    held, step = [call.before], 0
    for read in call.reads:
        if not _reads(read.arguments, held) or step == len(groups):
            continue
        kind: Kind = "branch"
        totals = [term.total for term in groups[step]]
        if read.place == states[step] and read.place not in totals:
            kind = "norm"
        elif read.place in totals:
            kind = "sum" if read.place == totals[-1] else "term"
        kinds.append(kind)
        if kind != "branch":
            held = [*held, read.result] if kind == "term" else [read.result]
            step += read.place == states[step]
        if read.function in IN_PLACE and _reads(read.arguments[:1], [call.before, *held]) and kind != "branch":
            step = -1
            break
    if step != len(groups) or call.overwrites:
        raise UserError(
            f"step='sublayer': {call.name!r} adds {len(groups)} branches, and its state cannot be followed from sum to "
            "sum (written over, or changed between); write the sums with stepnet.Residual, or take step='layer'"
        )
    return tuple(kinds)


def _reads(args: Sequence[Any], held: Sequence[Tensor]) -> bool:
    return any(value is state for value in args for state in held)


def run_layer(layer: ConvertedStep, role: Role, u: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the forward of a layer whose residual sums are steps; `role` is the first of them."""
    if is_traced(u):
        raise UserError(f"torch.fx cannot record the steps inside {role.name!r}: use torch.export")
    slope = StepSlope(layer, role, args, kwargs)
    again = slope.again
    if slope.checkpointed and again.keywords.get("use_reentrant", True):  # type: ignore[attr-defined]
        raise UserError(f"{role.name!r} cannot be evaluated again in two passes: choose use_reentrant=False")
    args, kwargs = slope.without_cache()
    if role.evaluations > 1:
        refuse_cache(role, args, kwargs)
    roles, past, cost = layer.step_roles_from(role), past_of(role, u), layer.step_cost
    gates = [layer.step_gate_of(one, u) for one in roles]
    if layer.step_pass is not None and any(is_number(gate, 0) for gate in gates):
        layer.step_pass.unused += layer.parameters()
    runs: list[SublayerSteps] = []

    def forward(u: Tensor, *args: Any) -> Any:
        steps = (SplitStep if role.scheme.splits else SublayerSteps)(layer, roles, gates, cost, u, past)
        runs.append(steps)  # a backward pass may run it again
        while True:
            placed, named = role.argument.put(args, kwargs, steps.argument)
            with steps:
                output = layer.step_original.forward(layer, *placed, **named)
            steps.check_end(state_in(output, role.result))
            if not steps.begin_again():
                return output

    output = again(forward, u, *role.argument.put(args, kwargs, None)[0])
    hand_on(roles[-1], state_in(output, role.result), runs[0].past, runs[0].streams)
    return output


class SublayerSteps(TorchFunctionMode):
    """The steps of one call of a layer; the mode is active while the layer's own forward runs."""

    def __init__(
        self,
        layer: ConvertedStep,
        roles: Sequence[Role],
        gates: Sequence[Coefficient],
        cost: KineticCost | None,
        u: Tensor,
        past: CarriedPast,
    ) -> None:
        super().__init__()
        self.layer, self.roles, self.gates, self.cost, self.kinds = layer, roles, gates, cost, roles[0].kinds
        self.u, self.past = u, past
        self.streams: State = past.streams
        self.taken = self.met = 0  # steps, and functions that read the state
        self.held: list[Tensor] = []  # the state, and its sums with some of the branches of a step
        self.argument = self.begin()

    def begin(self) -> Tensor:
        """Begin a step; return where its branches read the state: `u_n`, or `Y = U y_n`."""
        role = self.roles[self.taken]
        self.k: Coefficient = self.layer.step_coefficients_of(role)
        self.us = (self.u if self.streams is None else self.streams, *self.past.us)
        self.argument = self.u
        self.seek_argument(role)
        self.held = [self.argument]
        return self.argument

    def seek_argument(self, role: Role) -> None:
        """Set the argument of the first evaluation."""
        if not is_number(self.gates[self.taken], 0):
            self.argument = role.step.argument(self.us, self.past.fs, self.k)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        name = getattr(func, "__name__", "")
        if (name not in SUMS and name not in NORMS) or not _reads(args, self.held):
            return func(*args, **options)
        kind = self.kinds[self.met] if self.met < len(self.kinds) else ""
        self.met += 1
        if kind == "branch":
            return func(*args, **options)
        if not kind or (name in NORMS) != (kind == "norm"):
            raise self.different()
        if kind == "norm":
            return self.normalise(lambda u: func(u, *args[1:], **options))
        end = func(*args, **options)
        self.held.append(end)
        return self.advance(end) if kind == "sum" else end

    def advance(self, end: Tensor) -> Tensor:
        """Take the step in which the layer computed `end`: `f = end - u`."""
        role, cost, gate = self.roles[self.taken], self.cost, self.gates[self.taken]
        f: Callable[..., State] = lambda v, i: Difference(end, v)  # noqa: E731
        if cost is not None:
            watched = cost.watch(f, role.dt)
            f = lambda v, i: watched(self.argument, i)  # noqa: E731  # where the layer really read its state
        return self.complete(end, *self.layer.step_advance(role, f, self.us, self.past.fs, self.k, gate))

    def complete(self, end: Tensor, new: State, slope: State) -> Tensor:
        """Set the state and the past after a step; return what the layer goes on with."""
        role = self.roles[self.taken]
        self.past = next_past(role, self.u, slope, self.past)
        if role.scheme.streams:
            self.streams = new
            new = role.scheme.read_out(new)
        u: Tensor = laid_out_like(end, new)
        u = u.view_as(u) if u is self.u else u  # a dropped step returns its state, which has its own past
        if "norm" in self.kinds[self.met : self.met + 1]:
            self.held = [u]
            return u
        return self.state(u)

    def normalise(self, norm: Callable[[State], State]) -> Tensor:
        """Apply the norm after a sum to the new state, or to its streams."""
        scheme = self.roles[self.taken].scheme
        if not scheme.streams:
            return self.state(norm(self.held[0]))
        self.streams = scheme.activate(norm, self.streams)
        return self.state(scheme.read_out(self.streams))

    def state(self, u: Tensor) -> Tensor:
        """Set `u_{n+1}`; return what the layer reads next, or returns."""
        self.layer.step_visit(self.roles[self.taken], self.u, u)
        self.u = u
        self.taken += 1
        self.held = []
        return self.begin() if self.taken < len(self.roles) else u

    def check_end(self, output: Tensor) -> None:
        """Raise unless every step was taken, and the layer returns the last state."""
        if self.met != len(self.kinds) or output is not self.u:
            raise self.different()

    def begin_again(self) -> bool:
        """Whether the layer has to run once more."""
        return False

    def different(self) -> UserError:
        return UserError(
            f"{self.roles[0].name.partition(':')[0]!r} adds to its state in another way than on the example, on which "
            f"it took {len(self.roles)} steps: convert it with an example like this call, or take step='layer'"
        )


class SplitStep(SublayerSteps):
    """A layer of two residual sums as one step of a splitting, `u' = f(u) + g(u)`.

    The layer computes `v = u + f(u)`, then `v + g(v)`. Where the splitting evaluates g elsewhere, the layer gets that
    state in the place of v. A splitting that does not evaluate f and then g runs the layer again, and in `strang` the
    first run computes an f that is not used.
    """

    def begin(self) -> Tensor:
        role, cost = self.roles[0], self.cost
        self.sides: list[Callable[..., State]] = [lambda v, i: Difference(self.end, v)] * 2
        if cost is not None:
            self.sides = [cost.watch(side, role.dt) for side in self.sides]
        self.known: dict[tuple[int, int], State] = {}  # values of f and g, by the number of the evaluation
        self.wanted: tuple[int, int] | None = (
            None  # the next evaluation, of f (0) or g (1); None at the end of the step
        )
        self.sums = 0
        return super().begin()

    def seek_argument(self, role: Role) -> None:
        """Take the step with the values that are known, up to the first evaluation that is not."""
        functions = partial(self.value, 0), partial(self.value, 1)
        try:
            self.result = self.layer.step_advance(role, functions, self.us, self.past.fs, self.k, self.gates[0])
            self.wanted = None
        except _Wanted as wanted:
            part, i, self.argument = wanted.args
            self.wanted = part, i

    def value(self, part: int, v: State, i: int) -> State:
        if (part, i) not in self.known:
            raise _Wanted(part, i, v)
        return self.known[part, i]

    def advance(self, end: Tensor) -> Tensor:
        """Take the value of f at the layer's first sum, of g at its second."""
        part, self.sums, self.end = self.sums, self.sums + 1, end
        if self.wanted is not None and self.wanted[0] == part:
            self.known[self.wanted] = self.sides[part](self.argument, self.wanted[1])
            self.seek_argument(self.roles[0])
        if part == 1 and self.wanted is None:
            self.end = self.complete(end, *self.result)
        elif part == 0 and self.wanted is not None and self.wanted[0] == 1:
            self.end = self.argument
        self.held = [self.end]
        return self.end

    def begin_again(self) -> bool:
        if self.wanted is None:
            return False
        self.met = self.sums = 0
        self.held = [self.argument]
        return True

    def check_end(self, output: Tensor) -> None:
        if self.met != len(self.kinds) or output is not self.end:
            raise self.different()


class _Wanted(Exception):
    """Ends a step at an evaluation that is not known yet."""
