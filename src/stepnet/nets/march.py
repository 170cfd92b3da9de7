"""The march of a stage: a step is straight-line code, recorded once from its scheme, and each memory mode is a walk.

A memory mode says what a training step keeps for its backward pass.

stored       all that autograd saves
recompute    the states, in a deep stage every m-th; the blocks are evaluated again (`replay`)
reversible   the last states; the scheme is run backwards (`reversible`)
auto         reversible if the coefficients are such that it keeps a quarter of the states or less, else recompute
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, fx, nn

from stepnet.errors import UserError
from stepnet.nets.replay import recomputed
from stepnet.nets.reversible import SPARE_BITS, ReversibleMarch
from stepnet.schemes import (
    Coefficient,
    Difference,
    Past,
    Plan,
    Point,
    RightHandSide,
    RightHandSides,
    Scheme,
    State,
    advance,
    from_parts,
    parts_of,
    scheme_of_step,
)

Memory = Literal["stored", "recompute", "reversible", "auto"]
Slope: TypeAlias = Callable[..., Any]  # `f(u, i)`: a block at its i-th evaluation in a step, whatever the time
Slopes: TypeAlias = "Slope | tuple[Slope, ...]"  # a tuple for a pair (f, g)
States: TypeAlias = tuple[State, ...]  # newest first
Fs: TypeAlias = Sequence[Slopes]
Ks: TypeAlias = Sequence[Coefficient]
Symbol: TypeAlias = Any  # a proxy of torch.fx for an argument
After: TypeAlias = Callable[[State], State]
StepFunctions: TypeAlias = Sequence[Callable[..., Any]]


class RecordedStep:
    """`run(f, us, fs, k)` returns `u_{n+1}` from the block, the states `u_n, u_{n-1}, …` and the slopes `f_{n-1}, …`.

    The scheme runs once, on proxies of torch.fx. Decisions that depend on numbers (which terms there are, which of them
    are scaled) are made then; the recorded code is the arithmetic of the step. `interpret` runs the scheme itself, for
    gates and for coefficients that are numbers. With `keeps_f` both also return `f_n`, which later steps read. A
    `whole` block returns `Difference(B(u), u)`. `k` is one tensor or a dict of them, as the scheme expects.
    """

    def __init__(
        self,
        method: Scheme,
        states: int,  # how many it reads
        dt: Coefficient,
        k: Coefficient = None,  # `OWNED`, or that of the scheme
        keeps_f: bool = False,
        whole: bool = False,
        pair: bool = False,  # a slope is (f, g)
        parts: int = 0,  # the number of parts of a state, if states are tuples, else 0
        enters: bool = False,  # it reads `u_0` and forms the streams
    ) -> None:
        self.method, self.states, self.dt, self.k = method, states, dt, k
        self.keeps_f, self.whole, self.pair, self.parts, self.enters = keeps_f, whole, pair, parts, enters
        self.run: Callable[[Slopes, States, States, Coefficient], Any]
        # Code that names each of n states would make the n-th step n lines long.
        self.run = self.interpret if method.whole_past else self._record()

    def __deepcopy__(self, memo: object) -> RecordedStep:
        return self  # immutable

    def __reduce__(self) -> tuple[Any, ...]:  # the code is recorded again
        options = self.keeps_f, self.whole, self.pair, self.parts, self.enters
        return RecordedStep, (self.method, self.states, self.dt, self.k, *options)

    def with_dt(self, dt: Coefficient) -> RecordedStep:
        """Return a step of another length, which is interpreted: its code is not recorded."""
        step = object.__new__(RecordedStep)
        vars(step).update(vars(self), dt=dt, run=step.interpret)
        return step

    def interpret(self, f: Slopes, us: States, fs: States, k: Coefficient, gate: Coefficient = 1) -> Any:
        past = self.past(f, us, fs)
        new = advance(self.method, past, self.dt, self.k if k is None else k, gate)
        if type(new) is tuple:
            new = tuple(map(_subtracted, new))  # the first velocity, if the block is known as `B(u)` only
        return (new, _subtracted(past[0].f)) if self.keeps_f else new

    def past(self, f: Slopes, us: States, fs: States) -> Past:
        """Return the points that the scheme reads."""
        us = (self.method.enter(us[0]), *us[1:]) if self.enters else us
        older = (Point(us[j], partial(_known, fs[j - 1]) if self.keeps_f else None) for j in range(1, self.states))
        return (Point(us[0], from_parts([self._side(part) for part in parts_of(f)])), *older)

    def argument(self, us: States, fs: States, k: Coefficient) -> State:
        """Where the step evaluates f first: `u_n`, or `Y = U y_n`."""

        def reached(u: State, i: int) -> State:
            raise _Reached(u)

        try:
            self.method.increment(self.past(reached, us, fs), self.dt, self.k if k is None else k)
        except _Reached as place:
            return place.args[0]
        return us[0]

    def _side(self, f: Slope) -> RightHandSide:
        def rhs(u: State, c: Coefficient, i: int) -> State:
            return f(_subtracted(u), i)  # the Neumann series evaluates f at f

        return rhs

    def on_symbols(self, f: Symbol, us: States, fs: States, k: Symbol) -> Any:
        """Run the step on proxies of torch.fx."""
        call = _call_whole if self.whole else _call
        functions: Slopes = (partial(call, f[0]), partial(call, f[1])) if self.pair else partial(call, f)
        return self.interpret(functions, us, fs, self._named(k) if self.k is OWNED else self.k)

    def _record(self) -> Callable[..., Any]:
        def step(f: Symbol, us: Symbol, fs: Symbol, k: Symbol) -> Any:
            return self.on_symbols(f, symbols(us, self.states, self.parts), symbols(fs, self.states - 1), k)

        return recorded(step, "f", "us", "fs", "k")

    def _named(self, k: Any) -> Coefficient:
        """Return the coefficients of the step as the scheme expects them."""
        if not self.method.learned:
            return k
        named = {name: k[name] for one in self.method.learned for name in one.names}
        if self.method.takes_tensors:
            return named
        return {one.name: _nested(named[one.name], one.shape()) for one in self.method.learned}


class _Reached(Exception):
    """Ends a step at its first evaluation of f."""


def _nested(values: Any, shape: tuple[int, ...]) -> Coefficient:
    return tuple(_nested(values[n], shape[1:]) for n in range(shape[0])) if shape else values


def recorded(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Record a function of these arguments as straight-line code."""
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    graph.output(tracer.create_arg(function(*(fx.Proxy(graph.placeholder(name), tracer) for name in names))))
    graph.eliminate_dead_code()
    graph.on_generate_code(lambda _: lambda lines: [line.replace(".__call__(", "(") for line in lines])
    code: Callable[..., Any] = fx.GraphModule(nn.Module(), graph).forward
    return code


def symbols(values: Symbol, count: int, parts: int = 0) -> States:
    """Return the first `count` entries of a tuple, as tuples of `parts` if set: torch.fx does not know lengths."""
    return tuple(symbols(values[j], parts) if parts else values[j] for j in range(count))


class _Owned:
    """A placeholder for a coefficient that is passed to the step."""

    def __reduce__(self) -> str:
        return "OWNED"


OWNED = _Owned()


def _call(f: Symbol, u: Symbol, i: int) -> Symbol:
    return f.tracer.create_proxy("call_method", "__call__", (f, u, i), {})


def _call_whole(f: Symbol, u: Symbol, i: int) -> Difference:
    return Difference(f.tracer.create_proxy("call_function", evaluate_whole, (f, u, i), {}), u)


def evaluate_whole(f: Slope, u: State, i: int) -> State:
    """Return `B(u)` of a block that returns `Difference(B(u), u)`."""
    return f(u, i).end


def _apply(after: Symbol, u: State) -> Any:
    applied = after.tracer.create_proxy("call_function", apply, (after, u), {})
    return symbols(applied, len(u)) if isinstance(u, tuple) else applied


def apply(after: After, u: State) -> State:
    """`after(u)`, as a function that torch.fx records."""
    return after(u)


def _known(f: State, u: State, c: Coefficient, i: int) -> State:
    return f


def _subtracted(f: State) -> State:
    return f.value if isinstance(f, Difference) else f


class March:
    """The steps of a stage, made once from its plan. Each walk yields `u_1, u_2, …`.

    A walk takes the slopes `fs` of the steps, the `window` of states before them (`u_0`, and the state before it if
    there is one), and a coefficient for each step, None for a step without one.
    """

    def __init__(
        self,
        scheme: Scheme,
        plan: Plan,
        dts: Sequence[float],
        after: After | None = None,
        whole: Sequence[bool] | None = None,  # which blocks return `Difference(B(u), u)`
    ) -> None:
        self.scheme, self.after = scheme, partial(scheme.activate, after) if after and scheme.streams else after
        self.window = None if scheme.whole_past else scheme.steps  # how many states are in use
        whole = [False] * len(plan.steps) if whole is None else whole
        pair, parts = len(scheme.functions) > 1, len(scheme.parts)
        made: dict[tuple[object, ...], RecordedStep] = {}  # equal steps share their code
        self.steps: list[RecordedStep] = []
        for n, step in enumerate(plan.steps):
            before = n + (plan.entry == "with past")
            states = 1 if step.method == "transition" else min(before + 1, self.window or before + 1)
            enters = n == 0 and bool(scheme.streams)
            key = step.method, step.owns_k, states, dts[n], whole[n], enters
            if key not in made:
                method = scheme_of_step(scheme, step.method)
                k = OWNED if step.owns_k else None if scheme.trainable else scheme.k
                read = 0 if scheme.stacked or enters or parts == 1 else parts
                made[key] = RecordedStep(method, states, dts[n], k, plan.reads_older_f, whole[n], pair, read, enters)
            self.steps.append(made[key])
        self.gates: Ks = [1] * len(self.steps)
        self.keeps_f = plan.reads_older_f
        self._write_code()

    def _write_code(self) -> None:
        self.step_functions: StepFunctions = [step.run for step in self.steps]
        # The stored walk, of which only the last state is returned.
        self.run = (
            self._last_state if self.window is None else recorded(self._on_symbols, "fs", "window", "ks", "after")
        )

    def __deepcopy__(self, memo: object) -> March:
        return self  # immutable

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "step_functions": None, "run": None}  # code, which is recorded again

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._write_code()

    def _on_symbols(self, fs: Symbol, window: Symbol, ks: Symbol, after: Symbol) -> State:
        depth = len(self.steps)
        us = symbols(window, self.steps[0].states, self.steps[0].parts) if self.steps else (window[0],)
        step_functions = [step.on_symbols for step in self.steps]
        applied = None if self.after is None else partial(_apply, after)
        *_, last = us[0], *self._walk(step_functions, symbols(fs, depth), us, symbols(ks, depth), applied)
        return last

    def stored(self, fs: Fs, window: States, ks: Ks, first: int = 0) -> Iterator[State]:
        """Save what autograd saves; `first` is the number of the first step."""
        return self._walk(self.step_functions[first:], fs, window, ks, self.after)

    def _walk(self, step_functions: StepFunctions, fs: Fs, us: States, ks: Ks, after: After | None) -> Iterator[State]:
        slopes: States = ()
        for step, f, k in zip(step_functions, fs, ks, strict=False):
            new = step(f, us, slopes, k)
            if self.keeps_f:
                new, slope = new
                slopes = (slope, *slopes)[: self.scheme.steps - 1]
            if after is not None:
                new = after(new)
            us = (new, *us)[: self.window]
            yield new

    def by_scheme(self, gates: Ks | None = None) -> March:
        """Return the march with steps interpreted by the scheme, for gates and for coefficients that are numbers."""
        march = copy.copy(self)
        gates = [1] * len(self.steps) if gates is None else gates
        march.step_functions = [
            partial(step.interpret, gate=gate) for step, gate in zip(self.steps, gates, strict=True)
        ]
        march.gates = gates
        march.run = march._last_state
        return march

    def _last_state(self, fs: Fs, window: States, ks: Ks, after: After | None) -> State:
        states = chain(window[:1], self._walk(self.step_functions, fs, window, ks, after))
        return deque(states, maxlen=1).pop()

    def with_step_sizes(self, dts: Sequence[Coefficient]) -> March:
        """Return the march with other step sizes, which may be tensors with a gradient; steps are interpreted."""
        march = copy.copy(self)
        march.steps = [step.with_dt(dt) for step, dt in zip(self.steps, dts, strict=True)]
        return march.by_scheme()

    def segmented(self, fs: Fs, window: States, ks: Ks, blocks: Sequence[nn.Module], length: int) -> Iterator[State]:
        """Save the states between segments; each segment is one evaluation, repeated in the backward pass."""
        for n in range(0, len(fs), length):
            part = slice(n, n + length)
            segment = partial(self._segment, n, fs[part], ks[part])
            states = recomputed(segment, nn.ModuleList(blocks[part]), *window)
            yield from states
            window = (*reversed(states), *window)[: self.window]

    def _segment(self, first: int, fs: Fs, ks: Ks, *window: State) -> list[State]:
        return list(self.stored(fs, window, ks, first))

    def reversible(self, fs: Fs, window: States, ks: Ks, blocks: Sequence[nn.Module]) -> Iterator[State]:
        """Save the last states; a transition, the entry of streams and steps without a full past are recomputed."""
        short = sum(step.states < self.scheme.steps for step in self.steps)
        opening = sum(
            step.enters or not isinstance(parts_of(f)[0], nn.Module) for step, f in zip(self.steps, fs, strict=True)
        )
        first = max(short, opening)
        fs = [*recomputing(fs[:first], blocks), *fs[first:]]
        march, us = ReversibleMarch(parts_of(window[0])[0].dtype), window
        for n, (step, f, k, gate) in enumerate(zip(self.steps, fs, ks, self.gates, strict=True)):
            rhs: RightHandSides = from_parts([right_hand_side(part) for part in parts_of(f)])
            start = self.scheme.enter(us[0]) if step.enters else us[0]
            past = (Point(start, rhs), *map(Point, us[1 : step.states]))
            new = march.advance(step.method, past, step.dt, step.k if k is None else k, gate)
            if step.enters:  # a velocity may be the number 0
                new = from_parts([part if isinstance(part, Tensor) else torch.zeros_like(us[0]) for part in new])
            us = (new, *us)[: self.scheme.steps]
            yield march.rounded(march.close(new) if n == len(fs) - 1 else new)


def recomputing(fs: Fs, blocks: Sequence[nn.Module]) -> list[Slopes]:
    """Return the slopes, evaluated again in the backward pass instead of saving tensors."""
    pairs = zip(fs, blocks, strict=False)
    return [from_parts([partial(recomputed, part, block) for part in parts_of(f)]) for f, block in pairs]


@dataclass(frozen=True)
class BlockSide:
    """A block as `rhs(u, c, i)`: blocks do not depend on time, so `c` is not used."""

    module: nn.Module

    def __call__(self, u: State, c: Coefficient, i: int, /) -> State:
        return self.module(u, i)


def right_hand_side(f: Slope) -> RightHandSide:
    """Return a slope as a right-hand side; that of a block has a `module`, whose evaluations can be repeated."""
    return BlockSide(f) if isinstance(f, nn.Module) else lambda u, c, i: f(u, i)


def choose_memory(memory: Memory, scheme: Scheme, ks: Iterable[Coefficient], activation: str) -> Memory:
    """Return the mode, resolving "auto"; raise if the scheme or an `activation` after the steps is not invertible."""
    if memory == "reversible" and not scheme.invertible:
        why = f": {scheme.why_not_invertible}" if scheme.why_not_invertible else ""
        raise UserError(f"memory='reversible': scheme {scheme.name!r} has no inverse{why}; take memory='recompute'")
    if memory == "reversible" and activation:
        raise UserError(f"memory='reversible': {activation} cannot be undone; take pre-activation, or 'recompute'")
    if memory != "auto":
        return memory
    if not scheme.invertible or activation:
        return "recompute"
    lost = [scheme.lost_bits(k) for k in ks]
    # Reversible saves two states in double precision each time the spare bits are lost; recompute, one per step.
    return "reversible" if 4 * sum(lost) / SPARE_BITS <= len(lost) / 4 else "recompute"


def segment_length(scheme: Scheme, depth: int) -> int:
    """Return the number of steps in a segment, the m that saves least: `s N / m` states between segments, `4 m` in one.

    A step reads s states; with m = 1 each is saved once. An evaluation saves about 4 states' worth for its gradient.
    """
    lengths = range(1, max(depth, 1) + 1)
    return min(lengths, key=lambda m: min(m, scheme.steps) * depth / m + 4 * scheme.stages * m)
