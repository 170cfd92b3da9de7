"""The plan of a march: for each step its method, whether it has a `k_n`, its evaluations of `f` and what it reads.

A plan is made by running the scheme once on symbolic sums. Stages, converted networks, drawings and reports read it, so
that none of them has to know how a scheme starts or what it reads.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from stepnet.errors import UserError
from stepnet.schemes.arithmetic import Coefficient, Difference, State, from_parts, parts_of
from stepnet.schemes.core import Equation, Past, Point, RightHandSide, RightHandSides, Scheme, advance, march
from stepnet.schemes.implicit import fixed_point
from stepnet.schemes.runge_kutta import Euler

if TYPE_CHECKING:
    import sympy

# How a stage starts from its input x. identity: `u_0 = x`. projected: `u_0 = P x`, and the first step is a transition,
# `u_1 = P x + dt f(x)`. with past: the state before `x` is projected too, and the transition is a full step.
Entry: TypeAlias = Literal["identity", "projected", "with past"]
StepMethod: TypeAlias = Literal["scheme", "starter", "transition"]

INPUT, BEFORE_INPUT = -1, -2  # the indices n of x and of the state before it; u_0 is the projected x
EULER = Euler()
MOST_PAST = 128  # steps of a march that reads all its past, without a warning


@cache
def symbol(name: str) -> sympy.Symbol:
    """Return a symbol of a plan's weights: `dt`, or a coefficient such as `k`.

    sympy is imported here, so that networks can be imported without it.
    """
    import sympy

    return sympy.Symbol("dt", positive=True) if name == "dt" else sympy.Symbol(name, real=True)


def symbols_of(scheme: Scheme, n: int = 0) -> Coefficient:
    """The coefficients of step n as symbols: `k`, or a dict of arrays such as `V11, V12, …`."""
    if not scheme.learned:
        return symbol("k")
    return {one.name: _symbols(one.name, one.shape(n)) for one in scheme.learned}


def _symbols(name: str, shape: tuple[int, ...]) -> Coefficient:
    if not shape:
        return symbol(name)
    return tuple(_symbols(f"{name}{'_' if i > 9 else ''}{i}", shape[1:]) for i in range(1, shape[0] + 1))


class Quantity(NamedTuple):
    """A state `u_n` (of a pair: `X_n` or `Y_n`), or the i-th evaluation of `f_n` (`g_n`), the block of step n."""

    name: str
    n: int
    i: int = 0


CONSTANT = Quantity("1", 0)  # the constant term of a sum, such as an initial velocity; not part of a plan
NO_SUM = "the step is not a combination of states and evaluations of f"

Terms: TypeAlias = "tuple[tuple[Quantity, sympy.Expr], ...]"  # a sum: (quantity, weight in dt and k)


@dataclass(frozen=True)
class PlannedEvaluation:
    """`result = f(argument)` at time `t_n + c dt`."""

    result: Quantity
    argument: Terms
    c: Coefficient


@dataclass(frozen=True)
class PlannedStep:
    """One step: its evaluations in order, and the new state as a sum (two sums for a pair)."""

    method: StepMethod
    owns_k: bool
    evaluations: tuple[PlannedEvaluation, ...]
    new: tuple[Terms, ...]

    @property
    def reads(self) -> set[Quantity]:
        """The states and evaluations in the new state or in an argument of `f`."""
        sums = (*self.new, *(evaluation.argument for evaluation in self.evaluations))
        return {quantity for terms in sums for quantity, _ in terms}


@dataclass(frozen=True)
class Plan:
    """The steps of a march; step n makes `u_{n+1}` with the n-th block."""

    entry: Entry
    transition: Scheme | None  # takes the first step if that changes the shape
    steps: tuple[PlannedStep, ...]

    @property
    def owners(self) -> list[int]:
        """The steps with a learned coefficient: those that the scheme itself takes."""
        return [n for n, step in enumerate(self.steps) if step.owns_k]

    @property
    def evaluations(self) -> list[int]:
        """The number of evaluations of each step's block, at least 1: the number of statistics it needs."""
        counts = [1] * len(self.steps)
        for step in self.steps:
            for evaluation in step.evaluations:
                _, n, i = evaluation.result
                counts[n] = max(counts[n], i + 1)
        return counts

    @cached_property
    def kept_f(self) -> frozenset[int]:
        """The steps of which a later one reads an `f`."""
        return frozenset(q.n for m, step in enumerate(self.steps) for q in step.reads if q.name in "fg" and q.n < m)

    @property
    def reads_older_f(self) -> bool:
        """Whether any step reads an `f` of an earlier step."""
        return bool(self.kept_f)


def transition_of(scheme: Scheme) -> Scheme:
    """Return the method for a step that changes the shape, where `f` can be evaluated once, at the old shape.

    For a pair it is the scheme's first step, whose `g` has the new shape; for streams, the scheme with the coefficients
    of Euler's step; otherwise Euler's method.
    """
    if scheme.streams:
        return scheme.as_euler()
    return scheme.starter() if scheme.partitioned else EULER


def scheme_of_step(scheme: Scheme, method: StepMethod) -> Scheme:
    """Return the scheme that takes a step: `scheme` itself, its starter, or its transition."""
    return scheme if method == "scheme" else scheme.starter() if method == "starter" else transition_of(scheme)


def steps_by_method(scheme: Scheme, plans: Iterable[Plan]) -> Counter[str]:
    """Count the steps of each method: ab3 over three blocks gives `{"heun": 2, "ab3": 1}`."""
    return Counter(scheme_of_step(scheme, step.method).name for plan in plans for step in plan.steps)


def rare_use_message(scheme: str, counts: Counter[str]) -> str:
    """Return a message if the scheme takes fewer than half of the steps, else the empty string."""
    count, total = counts[scheme], counts.total()
    if 2 * count >= total:
        return ""
    others = " and ".join(f"{name} {n}" for name, n in counts.items() if name != scheme)
    return f"{scheme} takes {count} of {total} steps, {others}"


def warn_if_rarely_used(scheme: Scheme, plans: Iterable[Plan]) -> None:
    """Warn if most steps of a network are taken by its scheme's starter."""
    if message := rare_use_message(scheme.name, steps_by_method(scheme, plans)):
        past = f"; it reads {scheme.steps} states, which every stage has to collect first" if scheme.steps > 1 else ""
        warnings.warn(f"{message}{past}: take deeper stages, or another scheme", stacklevel=3)


def warn_of_memory(scheme: Scheme, length: int) -> None:
    """Warn about a long march whose steps read all the past, before its memory is allocated."""
    if scheme.whole_past and length > MOST_PAST:
        weights = length * (length + 1) // 2 - 1
        warnings.warn(
            f"{scheme.name} on a stage of {length:,} steps keeps {length + 1:,} states at once, in evaluation too, "
            f"and learns {weights:,} weights: take shallower stages, or 'lm', which keeps two",
            stacklevel=3,
        )


def plan(scheme: Scheme, length: int, entry: Entry = "identity", ks: list[Coefficient] | None = None) -> Plan:
    """Plan `length` steps; `ks`, one for each step, replace the coefficients of the scheme."""
    transition = transition_of(scheme) if entry == "projected" else None
    recorder = _Recorder(scheme, length, transition)
    marching = march(
        scheme,
        map(recorder.block, range(length)) if entry == "identity" else recorder.blocks_after_input(),
        recorder.entered(scheme),
        symbol("dt"),
        recorder.owned(scheme) if scheme.trainable and ks is None else ks,
        after=recorder.record,
        past=[Point(recorder.state(BEFORE_INPUT))] if entry == "with past" else [],
        transition=transition,
        step=recorder.advance,
    )
    for _ in marching:
        pass
    return Plan(entry, transition, tuple(recorder.steps))


def full_step(scheme: Scheme) -> PlannedStep:
    """Plan one step with a full past and the scheme's `k`, for analysis."""
    import sympy

    recorder = _Recorder(scheme, scheme.steps)
    past = tuple(Point(recorder.state(n), recorder.block(n)) for n in reversed(range(scheme.steps)))
    new = advance(scheme, past, symbol("dt"), scheme.k)
    for part in parts_of(new):
        if sympy.expand(part.weights.get(CONSTANT, 0)) != 0:
            raise UserError(f"{NO_SUM}: it has {part.weights[CONSTANT]}")
    recorder.record(new)
    return recorder.steps[0]


def equation_in_k(scheme: Scheme) -> Equation:
    """The scheme's equation with k as a symbol: `(1 + k) u' = f` for lm."""
    import sympy

    if not scheme.trainable:
        return scheme.equation
    method = copy.copy(scheme)
    method.k = symbols_of(scheme)
    equation = method.equation
    return replace(equation, mass=sympy.sstr(equation.mass, order="rev-lex"))


class _Recorder:
    """Symbolic states and evaluations, and the steps recorded so far."""

    def __init__(self, scheme: Scheme, length: int, transition: Scheme | None = None) -> None:
        self.transition = transition
        self.parts, self.functions = scheme.parts, scheme.functions
        self.length = length
        self.steps: list[PlannedStep] = []
        self.begin()

    def begin(self) -> None:
        """Start recording a new step."""
        self.method: StepMethod = "scheme"
        self.owned_symbols: set[sympy.Symbol] = set()
        self.evaluations: list[PlannedEvaluation] = []

    def state(self, n: int) -> State:
        return from_parts([_Sum({Quantity(part, n): 1}) for part in self.parts])

    def entered(self, scheme: Scheme) -> State:
        """The initial streams of `u_0`."""
        return scheme.enter(_Sum({Quantity("u", 0): 1})) if scheme.streams else self.state(0)

    def block(self, n: int) -> RightHandSides:
        """The right-hand side of step n, or both of a pair."""
        return from_parts([self.function(name, n) for name in self.functions])

    def blocks_after_input(self) -> Iterator[RightHandSides]:
        """The right-hand sides of all steps, where the first `f` reads the input before its projection."""
        pair = len(self.functions) > 1
        first = self.function("f", 0, _Sum({Quantity(self.parts[-1] if pair else "u", INPUT): 1}))
        yield (first, self.function("g", 0)) if pair else first
        yield from map(self.block, range(1, self.length))

    def function(self, name: str, n: int, read: _Sum | None = None) -> RightHandSide:
        def rhs(u: State, c: Coefficient, i: int) -> _Sum:
            result = Quantity(name, n, i)
            self.evaluations.append(PlannedEvaluation(result, _terms(u if read is None else read), c))
            return _Sum({result: 1})

        return rhs

    def owned(self, scheme: Scheme) -> Iterator[Coefficient]:
        """Yield the symbolic coefficients of each step; a step owns them if one occurs in its weights."""
        while True:
            symbols = symbols_of(scheme, len(self.steps))
            self.owned_symbols = set(_flat(symbols))
            yield symbols

    def advance(self, scheme: Scheme, past: Past, dt: Coefficient, k: Coefficient, gate: Coefficient) -> State:
        """Advance as usual, and record which method takes the step."""
        if self.transition is not None and not self.steps:
            self.method = "transition"
        elif len(past) < scheme.steps:
            self.method = "starter"
        return advance(scheme, past, dt, k, gate)

    def record(self, new: State) -> State:
        """Record the step, and return a symbol for its result."""
        sums = tuple(map(_terms, parts_of(new)))
        weights = [weight for terms in (*sums, *(e.argument for e in self.evaluations)) for _, weight in terms]
        owns_k = any(self.owned_symbols & weight.free_symbols for weight in weights) if self.owned_symbols else False
        self.steps.append(PlannedStep(self.method, owns_k, tuple(self.evaluations), sums))
        self.begin()
        return self.state(len(self.steps))


class _Sum:
    """A sum of quantities, with the arithmetic that a scheme needs."""

    __array_ufunc__ = None  # so that `numpy scalar * sum` calls __rmul__

    def __init__(self, weights: dict[Quantity, Coefficient]) -> None:
        self.weights = weights

    def __add__(self, other: object) -> _Sum:
        weights = dict(self.weights)
        for quantity, weight in (other.weights if isinstance(other, _Sum) else {CONSTANT: other}).items():
            weights[quantity] = weights.get(quantity, 0) + weight
        return _Sum(weights)

    __radd__ = __add__

    def __sub__(self, other: _Sum) -> _Sum:
        return self + -1 * other

    def __mul__(self, c: Coefficient) -> _Sum:
        if isinstance(c, _Sum):
            raise UserError(f"{NO_SUM}: it has a product of them")
        return _Sum({quantity: c * weight for quantity, weight in self.weights.items()})

    __rmul__ = __mul__


@fixed_point.register
def _(guess: _Sum, phi: Callable[[_Sum], _Sum], tolerance: float) -> _Sum:
    """An implicit step from `u_n`, with the new state as a symbol in the argument of `f`."""
    import sympy

    n, name = max((q.n, q.name) for q in guess.weights if q.name not in "fg")
    new = Quantity(name, n + 1)
    image = phi(_Sum({new: 1})).weights
    factor = sympy.S.One / (1 - image.get(new, 0))
    return _Sum({quantity: factor * weight for quantity, weight in image.items() if quantity != new})


def _flat(symbols: Coefficient) -> Iterator[sympy.Symbol]:
    """Flatten nested arrays of symbols."""
    if isinstance(symbols, dict | tuple):
        for inner in symbols.values() if isinstance(symbols, dict) else symbols:
            yield from _flat(inner)
    else:
        yield symbols


def _terms(total: State) -> Terms:
    """The terms of a sum: states first, then evaluations, each from newest to oldest."""
    import sympy

    value = total.value if isinstance(total, Difference) else total
    if not isinstance(value, _Sum):  # a stream that is still 0
        return ()
    weights = ((quantity, sympy.expand(weight)) for quantity, weight in value.weights.items() if quantity != CONSTANT)
    ordered = sorted(weights, key=lambda term: (term[0].name in "fg", -term[0].n, term[0]))
    return tuple((quantity, weight) for quantity, weight in ordered if weight != 0)
