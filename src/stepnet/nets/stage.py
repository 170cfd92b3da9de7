"""A stage: one resolution, one scheme, N blocks. The only place where a network meets a scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.utils.hooks import RemovableHandle

from stepnet.arguments import Count, Positive, checked
from stepnet.errors import UserError
from stepnet.nets.bounds import Bound, BoundOption, Coefficients
from stepnet.nets.bounds import initial_k as first_k
from stepnet.nets.early_exit import EarlyExit
from stepnet.nets.march import (
    March,
    Memory,
    Slope,
    Slopes,
    States,
    choose_memory,
    recomputing,
    segment_length,
)
from stepnet.nets.network_steps import NetworkStep
from stepnet.nets.replay import only_reverse_mode
from stepnet.nets.trajectories import KineticCost, Visit, watch_calls
from stepnet.nets.transitions import CoupledTransition, Coupling, Transition, entry_of
from stepnet.schemes import (
    Coefficient,
    Scheme,
    State,
    equation_in_k,
    get_scheme,
    is_traced,
    parts_of,
    plan,
    warn_of_memory,
)

Gates = Sequence[Coefficient]
Pair = tuple[Tensor, Tensor]  # the state (X, Y) of a coupled system
StateT = TypeVar("StateT", Tensor, Pair)


class Stage(nn.Module):
    """`u_0 … u_N` by `march`, as its `plan` says: an optional transition, then the blocks.

    `dt` is the step size, or one for each step. `k` is one parameter with the coefficients of all steps that have
    one; a starting step has none. With a `k_bound` the parameter is `k_free`, from which `coefficients` computes k.
    `width` is the number of features of a state, which coefficients that vary with it need.
    """

    @checked
    def __init__(
        self,
        scheme: Scheme,
        blocks: Sequence[nn.Module] | nn.ModuleList,
        transition: Transition | CoupledTransition | None = None,
        dt: Positive | Sequence[Positive] = 1,
        after: Callable[[State], State] | None = None,
        initial_k: float | None = None,
        k_channels: Count | None = None,
        k_bound: BoundOption = None,
        memory: Memory = "stored",
        width: Count | None = None,
    ) -> None:
        super().__init__()
        check_coefficients(scheme, initial_k, k_channels, k_bound)
        self.scheme, self.after = scheme, after
        self.pairs = len(scheme.functions) > 1  # whether a block is a `Coupling`
        self.transition = transition
        self.blocks = nn.ModuleList(blocks)
        check_pairs(scheme, self.steps)
        self.dts = step_sizes(dt, self.depth)
        warn_of_memory(scheme, self.depth)
        self.plan = plan(scheme, self.depth, entry_of(transition))
        whole = [getattr(block, "whole", False) for block in self.steps]
        self.march = March(scheme, self.plan, self.dts, after, whole)
        owners = self.plan.owners
        self.numbers = [owners.index(n) if n in owners else None for n in range(self.depth)]  # of the steps' k
        self.segment = 1 if self.plan.reads_older_f else segment_length(scheme, self.depth)
        self.bound = Bound.of(k_bound, scheme)
        self.k: nn.Parameter | None = None
        self.mixing = Coefficients(scheme, owners, width) if scheme.learned and owners else None
        if owners and self.mixing is None:
            shape = (len(owners),) if k_channels is None else (len(owners), k_channels, 1, 1)
            k = first_k(scheme, shape, initial_k, self.bound)
            if self.bound is None:
                self.k = nn.Parameter(k)
            else:
                self.k_free = nn.Parameter(self.bound.free(k))
        self.set_memory(memory)

    def set_memory(self, memory: Memory) -> None:
        """Set what training keeps for the backward pass: see `Memory`."""
        self._choose(memory)  # raises if the scheme does not allow it
        self.memory: Memory = memory

    @property
    def memory_in_use(self) -> Memory:
        """The mode of a training step; "auto" depends on the current coefficients."""
        return self._choose(self.memory)

    def _choose(self, memory: Memory) -> Memory:
        learned = [k for k in self.ks() if k is not None] if memory == "auto" else []
        ks = learned or [self.scheme.k] * self.depth
        return choose_memory(memory, self.scheme, ks, "a ReLU after each step" if self.after is not None else "")

    @property
    def coefficients(self) -> Tensor | None:
        """`k_n` of the steps that have one, in order; named coefficients are in `mixing`."""
        return self.k if self.bound is None or not self.plan.owners else self.bound.k(self.k_free)

    @property
    def steps(self) -> list[nn.Module]:
        """The block of each step, starting with the transition's."""
        return [*([] if self.transition is None else [self.transition.block]), *self.blocks]

    @property
    def step_names(self) -> list[str]:
        """The name of each step in the stage."""
        return [*([] if self.transition is None else ["transition"]), *(f"blocks.{n}" for n in range(len(self.blocks)))]

    @property
    def depth(self) -> int:
        """The number of steps, including the transition."""
        return len(self.steps)

    def named_coefficients(self) -> Iterator[tuple[str, Tensor]]:
        """Yield each `k_n` with the name of its step; a named coefficient V as `blocks.1:V`."""
        ks = self.coefficients
        if self.mixing is not None:
            yield from ((f"{self.step_names[n]}:{name}", value) for n, name, value in self.mixing.named())
            return
        for owner, k in zip(self.plan.owners, () if ks is None else ks.unbind(), strict=True):
            yield self.step_names[owner], k

    def states(
        self,
        x: StateT,
        past: StateT | None = None,
        gates: Gates | None = None,
        ks: Sequence[Coefficient] | None = None,
        cost: KineticCost | None = None,
        read_out: bool = True,
    ) -> Iterator[StateT]:
        """Yield `u_0, u_1, …, u_N`; without `read_out`, streams are yielded as they are.

        `past` is the state before `x`, from the previous stage. `gates` has one entry for each step, and so has `ks`:
        coefficients that the scheme does not learn (FractalNet's join weights). A running `cost` observes the
        right-hand sides.
        """
        traced = is_traced(parts_of(x)[0])
        memory = "stored" if self.memory == "stored" or traced else self._memory_of_pass(cost)
        window, fs = self.enter(x, past)
        learned = ks is None
        ks = self.ks() if ks is None else ks
        march = self.march
        if traced or gates is not None or not learned:
            march = march.by_scheme(gates)
        yield window[0]  # streams start with the first step
        states: Iterator[StateT]
        if memory == "reversible":
            states = march.reversible(fs, window, ks, self.steps)
        elif memory == "recompute" and self.segment > 1 and cost is None and learned:
            states = march.segmented(fs, window, ks, self.steps, self.segment)
        else:
            fs = fs if memory == "stored" else recomputing(fs, self.steps)
            fs = fs if cost is None else [cost.watch(cast(Slope, f), dt) for f, dt in zip(fs, self.dts, strict=True)]
            states = march.stored(fs, window, ks)
        yield from map(self.scheme.read_out, states) if read_out else states

    def enter(self, x: StateT, past: StateT | None) -> tuple[States, list[Slopes]]:
        """Return `u_0`, with the projected past if there is one, and the slope of each step."""
        fs: list[Slopes] = list(self.blocks)
        if self.pairs:
            fs = [(block.f, block.g) for block in cast("list[Coupling]", fs)]
        if self.transition is None:
            return (x,), fs
        start, f = self.transition.enter(x)
        if self.transition.project_past is None:
            return (start,), [f, *fs]
        if past is None:
            raise UserError("this stage also projects the state before x: call it with (x, past)")
        return (start, self.transition.project_past(past)), [f, *fs]

    def ks(self) -> list[Coefficient]:
        """Return the coefficient of each step, or a dict of named ones; None for a step without any."""
        stacked = self.coefficients
        parts: Sequence[Coefficient] = ()
        if self.mixing is not None:
            parts = self.mixing.by_step()
        elif stacked is not None:
            parts = stacked.unbind()  # indexed, since torch.fx cannot iterate over them
        return [None if n is None else parts[n] for n in self.numbers]

    def _memory_of_pass(self, cost: KineticCost | None) -> Memory:
        """Return the memory mode of this pass; it cannot be reversible with a running cost, which reads every f."""
        if not (self.training and torch.is_grad_enabled() and only_reverse_mode()):
            return "stored"
        memory = self.memory_in_use
        return "recompute" if cost is not None and memory == "reversible" else memory

    def forward(
        self,
        x: StateT,
        past: StateT | None = None,
        gates: Gates | None = None,
        ks: Sequence[Coefficient] | None = None,
        cost: KineticCost | None = None,
        visit: Visit | None = None,
        exit: EarlyExit | None = None,
    ) -> StateT:
        """Return the last state; call `visit` with every state. Modes that recompute run without torch.compile.

        With an early `exit`, return the last state that each sample reaches; it excludes `visit`.
        """
        if exit is not None:
            return cast(StateT, exit.march(self, x, gates, visit))
        stored = self.memory == "stored" or not self.training
        last = _last if stored else _last_eagerly
        if visit is not None:
            return last(self.states(x, past, gates, ks, cost), visit)
        state: StateT
        plain = gates is None and ks is None and cost is None
        if stored and plain and not is_traced(x[0] if isinstance(x, tuple) else x):
            window, fs = self.enter(x, past)
            state = self.march.run(fs, window, self.ks(), self.march.after)
        else:
            state = last(self.states(x, past, gates, ks, cost, read_out=False), None)
        return self.scheme.read_out(state) if self.scheme.streams and self.depth else state

    def network_steps(self) -> Iterator[NetworkStep]:
        """See `Stepped`."""
        ks = dict(self.named_coefficients()) if self.mixing is None else {}
        for n, (name, block, step) in enumerate(zip(self.step_names, self.steps, self.plan.steps, strict=True)):
            yield NetworkStep(name, self.scheme, step.method, self.dts[n], ks.get(name), block, n, self)

    def watch_states(self, stages: list[list[Tensor]]) -> RemovableHandle:
        """See `Stepped`."""
        return watch_calls(self, stages)

    def extra_repr(self) -> str:
        """The scheme's equation, the values of k and their bound."""
        parts = [f"scheme={self.scheme.name}", f"dt={written(self.dts)}"]
        parts += [] if self.scheme.learned else [f"equation: {equation_in_k(self.scheme)}"]
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


def step_sizes(dt: float | Sequence[float], depth: int) -> tuple[float, ...]:
    """Return one step size for each step."""
    dts = (dt,) * depth if isinstance(dt, int | float) else tuple(dt)
    if len(dts) != depth:
        raise UserError(
            f"dt = {written(dts)}: {len(dts)} step sizes for a stage of {depth} steps; give one, or one each"
        )
    return dts


def written(dts: Sequence[float]) -> str:
    """Format step sizes: `0.5`, or `(1, 0.5, 0.5)` if they differ; shorten a long list."""
    texts = [f"{dt:.4g}" for dt in dts]
    shown = texts if len(texts) < 9 else [*texts[:3], "…", *texts[-3:]]
    return texts[0] if len(set(dts)) == 1 else f"({', '.join(shown)})"


def check_coefficients(scheme: Scheme, k: float | None, channels: int | None, bound: BoundOption = None) -> None:
    """Raise for options of coefficients that the scheme would ignore."""
    if scheme.learned and (k is not None or channels is not None or bound is not None):
        option = f"k = {k!r}" if k is not None else "k_per_channel" if channels is not None else f"k_bound = {bound!r}"
        first = scheme.learned[0].name
        names = ", ".join(one.name for one in scheme.learned)
        raise UserError(
            f"{option}: the coefficients of {scheme.name!r} are {names}; "
            f"give them to the scheme, as in get_scheme({scheme.name!r}, {first}=…)"
        )
    if not scheme.trainable and (k is not None or channels is not None):
        option = "k_per_channel" if k is None else f"k = {k!r}"
        raise UserError(f"{option}: scheme {scheme.name!r} learns no coefficients; leave it out, or take scheme 'lm'")


def check_pairs(scheme: Scheme, blocks: Sequence[nn.Module]) -> None:
    """Raise for single blocks where the scheme advances pairs."""
    single = next((block for block in blocks if not isinstance(block, Coupling)), None)
    if len(scheme.functions) > 1 and single is not None:
        raise UserError(
            f"scheme {scheme.name!r} advances f and g: expected a Coupling of both in each step, got a "
            f"{type(single).__name__}"
        )


def scheme_of_family(scheme: str | Scheme | None, default: str, family: str) -> Scheme:
    """Return the family's `default` scheme, or LM over it; raise for any other."""
    base = get_scheme(default)
    method = base if scheme is None else get_scheme(scheme).over(base)
    if method.name not in (base.name, f"lm+{base.name}"):
        raise UserError(
            f"scheme {method.name!r} would make {family} another network: it is {base.name!r}; take 'lm' or a resnet"
        )
    return method


def check_makes_network(scheme: Scheme, pair: bool = False, branches: bool = False) -> None:
    """Raise for a scheme that cannot advance residual blocks, with `pair` the couplings of a RevNet.

    With `branches` the blocks have two, so that the scheme may also be a splitting.
    """
    if scheme.splits and not branches:
        raise UserError(
            f"scheme {scheme.name!r} splits u' = f + g: it needs layers of two branches, attention and feed-forward "
            "network; use a gpt or vit model, e.g. 'gpt12x48'"
        )
    if not scheme.makes_network:
        raise UserError(f"scheme {scheme.name!r} makes no network: an implicit step would have to invert the block")
    if pair and not scheme.partitioned:
        raise UserError(f"scheme {scheme.name!r} does not advance a pair (X, Y): a revnet takes 'coupled'")
    if scheme.partitioned and not pair:
        raise UserError(f"scheme {scheme.name!r} advances a pair (X, Y): use a revnet model, e.g. 'revnet38'")
