"""A stage: one resolution, one scheme, N blocks. The only place where a network meets a scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.utils.hooks import RemovableHandle

from stepnet.arguments import Count, Positive, checked
from stepnet.errors import UserError
from stepnet.nets.blocks import PreActivation
from stepnet.nets.bounds import Bound, BoundOption
from stepnet.nets.bounds import initial_k as first_k
from stepnet.nets.memory_modes import Memory, choose_memory, recomputing, segment_length
from stepnet.nets.replay import only_reverse_mode, recomputed
from stepnet.nets.reversible import ReversibleMarch
from stepnet.nets.trajectories import KineticCost, Visit, watch_calls
from stepnet.schemes import Point, Scheme, get_scheme, march
from stepnet.schemes.arithmetic import Coefficient, State, is_traced, parts_of
from stepnet.schemes.core import RightHandSide, RightHandSides
from stepnet.schemes.plan import Entry, equation_in_k, plan

Gates = Sequence[Coefficient]
Pair = tuple[Tensor, Tensor]  # the state (X, Y) of a coupled system
StateT = TypeVar("StateT", Tensor, Pair)


class Coupling(nn.Module):
    """The pair `(f, g)` of one step of a coupled system: `X' = f(Y)`, `Y' = g(X)`."""

    def __init__(self, f: nn.Module, g: nn.Module) -> None:
        super().__init__()
        self.f, self.g = f, g


class Transition(nn.Module):
    """The first block of a stage that changes the shape: `u_0 = P x`, `u_1 = P x + f(x)`.

    Down-sampling is not part of the differential equation, so this is always an Euler step with `f` at the old
    resolution. The projected input `P x` is the past of the next step. With `project_past` (LM-ResNeXt) the state
    before `x` is projected too, by a convolution of its own, and the transition is a full step of the scheme.
    """

    def __init__(self, block: nn.Module, shortcut: nn.Module, project_past: nn.Module | None = None) -> None:
        super().__init__()
        self.block = block
        self.shortcut = shortcut
        self.project_past = project_past

    def point(self, x: State) -> Point:
        """The projected input with `f(x)` as its right-hand side."""
        return Point(self.shortcut(x), lambda u, c, i: self.block(x))


class SharedTransition(Transition):
    """A pre-activation transition whose shortcut shares the block's first (bn, relu): `u_0 = P relu(bn(x))`."""

    def point(self, x: State) -> Point:
        """The projected activation, with `f(x)` as its right-hand side."""
        activated = cast(PreActivation, self.block).activated(x)
        return Point(self.shortcut(activated), lambda u, c, i: self.block(x, activated=activated))


class CoupledTransition(nn.Module):
    """The same for a pair: `X_1 = P X + f(Y)`, `Y_1 = P Y + g(X_1)`, where `g` stands at the new resolution."""

    project_past = None

    def __init__(self, coupling: Coupling, shortcuts: tuple[nn.Module, nn.Module]) -> None:
        super().__init__()
        self.coupling = coupling
        self.shortcuts = nn.ModuleList(shortcuts)

    @property
    def block(self) -> nn.Module:
        """Its pair `(f, g)`."""
        return self.coupling

    def point(self, state: State) -> Point:
        """The projected pair, with `f(Y)` of the state before the projection."""
        projected = tuple(shortcut(part) for shortcut, part in zip(self.shortcuts, state, strict=True))
        return Point(projected, (lambda u, c, i: self.coupling.f(state[1]), lambda u, c, i: self.coupling.g(u, i)))


class Stage(nn.Module):
    """`u_0 … u_N` by `march`, as its `plan` says: an optional transition, then the blocks.

    `k` is one parameter that holds the coefficients of all steps that own one: a starting step owns none. With a
    `k_bound` the parameter is `k_free`, from which `coefficients` makes k.
    """

    @checked
    def __init__(
        self,
        scheme: Scheme,
        blocks: Sequence[nn.Module] | nn.ModuleList,
        transition: Transition | CoupledTransition | None = None,
        dt: Positive = 1,
        after: Callable[[State], State] | None = None,
        initial_k: float | None = None,
        k_channels: Count | None = None,
        k_bound: BoundOption = None,
        memory: Memory = "stored",
    ) -> None:
        super().__init__()
        check_coefficients(scheme, initial_k, k_channels)
        self.scheme, self.dt, self.after = scheme, dt, after
        self.transition = transition
        self.blocks = nn.ModuleList(blocks)
        self.plan = plan(scheme, self.depth, entry_by(transition))
        self.segment = 1 if self.plan.reads_older_f else segment_length(scheme, self.depth)
        self.bound = Bound.of(k_bound, scheme)
        self.k: nn.Parameter | None = None
        if owners := len(self.plan.owners):
            shape = (owners,) if k_channels is None else (owners, k_channels, 1, 1)
            k = first_k(scheme, shape, initial_k, self.bound)
            if self.bound is None:
                self.k = nn.Parameter(k)
            else:
                self.k_free = nn.Parameter(self.bound.free(k))
        self.set_memory(memory)

    def set_memory(self, memory: Memory) -> None:
        """What training keeps for the backward pass: see `Memory`."""
        self._choose(memory)  # or tell why it cannot be
        self.memory: Memory = memory

    @property
    def memory_in_use(self) -> Memory:
        """The mode of a training step; "auto" chooses from the coefficients as they are now."""
        return self._choose(self.memory)

    def _choose(self, memory: Memory) -> Memory:
        own = self.coefficients if memory == "auto" else None
        ks = [self.scheme.k] * self.depth if own is None else own.unbind()
        return choose_memory(memory, self.scheme, ks, "a ReLU after each step" if self.after is not None else "")

    @property
    def coefficients(self) -> Tensor | None:
        """`k_n` of the steps that own one, in order."""
        return self.k if self.bound is None or not self.plan.owners else self.bound.k(self.k_free)

    @property
    def steps(self) -> list[nn.Module]:
        """The block of each step, the transition's first."""
        return [*([] if self.transition is None else [self.transition.block]), *self.blocks]

    @property
    def step_names(self) -> list[str]:
        """The name of each step in the stage."""
        return [*([] if self.transition is None else ["transition"]), *(f"blocks.{n}" for n in range(len(self.blocks)))]

    @property
    def depth(self) -> int:
        """How many steps it takes, the transition counted."""
        return len(self.steps)

    def named_coefficients(self) -> Iterator[tuple[str, Tensor]]:
        """`k_n` with the name of the block whose step owns it."""
        ks = self.coefficients
        for owner, k in zip(self.plan.owners, () if ks is None else ks.unbind(), strict=True):
            yield self.step_names[owner], k

    def states(
        self,
        x: StateT,
        past: StateT | None = None,
        gates: Gates | None = None,
        given: Sequence[Coefficient] | None = None,
        cost: KineticCost | None = None,
    ) -> Iterator[StateT]:
        """Yield `u_0, u_1, …, u_N`.

        `past` is the state before `x`, of the stage before. `gates` are one for each step; so are `given`, the
        coefficients of a scheme that does not learn them (FractalNet's join weights). A running `cost` watches
        the right-hand sides.
        """
        own = self.coefficients
        owned: Sequence[Coefficient] | None = () if self.scheme.trainable else None
        if own is not None:
            parts = own.unbind()  # taken by their numbers, since torch.fx cannot count them
            owned = [parts[n] for n in range(len(self.plan.owners))]
        memory = self.memory_in_use if self.training and torch.is_grad_enabled() else "stored"
        if is_traced(parts_of(x)[0]) or not (memory == "stored" or only_reverse_mode()):
            memory = "stored"  # a graph says what is computed; what to keep of it is for whoever runs it
        fs: list[RightHandSides] = [right_hand_side(block) for block in self.blocks]
        history: tuple[Point, ...] = ()
        if self.transition is not None:
            start = self.transition.point(x)
            x, fs = start.u, [start.rhs, *fs]
            if self.transition.project_past is not None:
                if past is None:
                    raise UserError("this stage also projects the state before x: call it with (x, past)")
                history = (Point(self.transition.project_past(past)),)
        if memory == "reversible" and cost is not None:
            memory = "recompute"  # a cost reads every f
        # A segment's repetition would sum a cost again.
        segmented = memory == "recompute" and self.segment > 1 and cost is None and given is None
        if memory != "stored" and not segmented:
            # A transition, and a step that has not its whole past, cannot be taken back.
            short = sum(step.method != "scheme" for step in self.plan.steps)
            first = max(int(self.transition is not None), short)
            again = self.depth if memory == "recompute" else first
            fs[:again] = [recomputing(f, block) for f, block in zip(fs, self.steps[:again], strict=False)]
        if cost is not None:
            fs = [cost.watch(cast(RightHandSide, f), self.dt) for f in fs]
        yield x
        ks = owned if given is None else given
        if memory == "reversible":
            reversible = ReversibleMarch(parts_of(x)[0].dtype)
            taken = march(
                self.scheme, fs, x, self.dt, ks, gates, None, history, self.plan.transition, take=reversible.advance
            )
            for n, u in enumerate(taken, 1):
                yield reversible.given(reversible.close(u) if n == self.depth else u)
        elif segmented:
            yield from self._segments(fs, (x, *(point.u for point in history)), ks, gates)
        else:
            yield from march(self.scheme, fs, x, self.dt, ks, gates, self.after, history, self.plan.transition)

    def _segments(
        self,
        fs: list[RightHandSides],
        window: tuple[State, ...],
        ks: Sequence[Coefficient] | None,
        gates: Gates | None,
    ) -> Iterator[State]:
        """The march in segments of m steps, each repeated as one evaluation of the states before it."""
        own = iter(ks or ())
        for n in range(0, self.depth, self.segment):
            part = slice(n, n + self.segment)
            owned = None if ks is None else [next(own) for step in self.plan.steps[part] if step.owns_k]
            transition = self.plan.transition if n == 0 else None
            segment = partial(self._segment, fs[part], owned, None if gates is None else gates[part], transition)
            states = recomputed(segment, nn.ModuleList(self.steps[part]), *window)
            yield from states
            window = (*reversed(states), *window)[: self.scheme.steps]

    def _segment(
        self,
        fs: list[RightHandSides],
        ks: list[Coefficient] | None,
        gates: Gates | None,
        transition: Scheme | None,
        u: State,
        *past: State,
    ) -> list[State]:
        points = [Point(v) for v in past]
        return list(march(self.scheme, fs, u, self.dt, ks, gates, self.after, points, transition))

    def forward(
        self,
        x: StateT,
        past: StateT | None = None,
        gates: Gates | None = None,
        given: Sequence[Coefficient] | None = None,
        cost: KineticCost | None = None,
        visit: Visit | None = None,
    ) -> StateT:
        """The last state; `visit` is called with every state. What is made again in a backward pass runs eagerly."""
        last = _last if self.memory == "stored" or not self.training else _last_eagerly
        return last(self.states(x, past, gates, given, cost), visit)

    def watch_states(self, stages: list[list[Tensor]]) -> RemovableHandle:
        """See `stepnet.nets.trajectories`."""
        return watch_calls(self, stages)

    def extra_repr(self) -> str:
        """The equation in its own k, and their values now; a bound, where there is one."""
        parts = [f"scheme={self.scheme.name}", f"dt={self.dt}", f"equation: {equation_in_k(self.scheme)}"]
        ks = self.coefficients
        if ks is not None and not ks.is_meta:
            values = [f"{value:.4g}" for value in ks.detach().flatten().tolist()]
            parts.append("k = " + ", ".join(values if len(values) < 9 else [*values[:3], "…", *values[-3:]]))
        if self.bound is not None:
            parts.append(str(self.bound))
        if self.memory != "stored":
            parts.append(f"memory={self.memory}" + (f" ({self.memory_in_use})" if self.memory == "auto" else ""))
        return ", ".join(parts)


def _last(states: Iterator[StateT], visit: Visit | None) -> StateT:
    for u in states:
        if visit is not None:
            visit(u)
    return u


_last_eagerly = _disable_dynamo(_last)


@dataclass(frozen=True)
class BlockSide:
    """A block as `rhs(u, c, i)`: a network has no clock, so `c` is not used."""

    module: nn.Module

    def __call__(self, u: State, c: Coefficient, i: int, /) -> State:
        return self.module(u, i)


def right_hand_side(block: nn.Module) -> RightHandSides:
    """A block as a right-hand side, a coupling as a pair of them."""
    return (BlockSide(block.f), BlockSide(block.g)) if isinstance(block, Coupling) else BlockSide(block)


def entry_by(transition: Transition | CoupledTransition | None) -> Entry:
    """How a stage with this transition begins."""
    return "given" if transition is None else "projected" if transition.project_past is None else "with past"


def check_coefficients(scheme: Scheme, k: float | None, channels: int | None) -> None:
    """Refuse coefficients that would be ignored."""
    if not scheme.trainable and (k is not None or channels is not None):
        option = "k_per_channel" if k is None else f"k = {k!r}"
        raise UserError(f"{option}: scheme {scheme.name!r} learns no coefficients; leave it out, or take scheme 'lm'")


def scheme_of_family(scheme: str | Scheme | None, own: str, family: str) -> Scheme:
    """The scheme of a family that is defined by its increment: its `own`, or LM's carry over it; no other, silently."""
    base = get_scheme(own)
    method = base if scheme is None else get_scheme(scheme).over(base)
    if method.name not in (base.name, f"lm+{base.name}"):
        raise UserError(
            f"scheme {method.name!r} would make {family} another network: it is {base.name!r}; take 'lm' or a resnet"
        )
    return method


def check_makes_network(scheme: Scheme, pair: bool = False) -> None:
    """Refuse a scheme that cannot march the blocks of a residual stage, or couplings, and say what can."""
    if not scheme.makes_network:
        raise UserError(f"scheme {scheme.name!r} makes no network: an implicit step would have to invert the block")
    if pair and not scheme.equation.partitioned:
        raise UserError(f"scheme {scheme.name!r} does not advance a pair (X, Y): a revnet takes 'coupled'")
    if scheme.equation.partitioned and not pair:
        raise UserError(f"scheme {scheme.name!r} advances a pair (X, Y): use a revnet model, e.g. 'revnet38'")
