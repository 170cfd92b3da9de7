"""What a scheme is, and the one loop that marches it.

    u_{n+1} = carry(past, dt, k) + increment(past, dt, k)

`carry` combines states that are already known; `increment` evaluates `f`, and is not called when a gate drops
the step. The three callers are a network stage (blocks as right-hand sides), `stepnet.solve` (any right-hand
side) and `stepnet.analysis` (symbols): they all go through `advance`, one step, which `march` repeats.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Literal, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from stepnet.arguments import shown
from stepnet.errors import UserError
from stepnet.schemes.arithmetic import Coefficient, State, combine, is_finite, is_number, is_tensor

S = TypeVar("S")  # the kind of state that a march is given and gives back


class RightHandSide(Protocol):
    """`f` at time `t_n + c dt`, where `t_n` is that of its step."""

    def __call__(self, u: State, c: Coefficient, i: int, /) -> State:
        """`f(t_n + c dt, u)`.

        `i` counts the evaluations within one step, since a network's block keeps its own normalisation statistics for
        each of them.
        """
        ...


RightHandSides: TypeAlias = "RightHandSide | tuple[RightHandSide, ...]"  # of two: (f, g)
Past: TypeAlias = "tuple[Point, ...]"  # newest first: past[0] is u_n, past[1] is u_{n-1}


class Point:
    """A state `u_n` with its right-hand side; `f = rhs(u_n)` is evaluated once, when first asked for, and kept."""

    __slots__ = ("_f", "_known", "_mixed", "gate", "rhs", "u")

    def __init__(self, u: State, rhs: RightHandSides | None = None) -> None:
        self.u = u
        self.rhs = cast(RightHandSide, rhs)
        self.gate: Coefficient = 1  # set when the step is taken: later ones read `gate f`
        self._f: State = 0  # what a point without a right-hand side contributes: nothing
        self._known = rhs is None
        self._mixed: tuple[object, State] = None, 0

    @property
    def pair(self) -> tuple[RightHandSide, ...]:
        """`(f, g)` of a partitioned system, or of a sum that is split."""
        return cast("tuple[RightHandSide, ...]", self.rhs)

    @property
    def f(self) -> State:
        """`gate f(t_n, u_n)`: a multistep method remembers 0 for an `f` that was dropped, and never computes it."""
        if is_number(self.gate, 0):
            return 0
        if not self._known:
            self._f = self.rhs(self.u, 0, 0)
            self._known = True
        return self._f if is_number(self.gate, 1) else combine((self.gate, self._f))

    def mixed_by(self, k: object, mix: Callable[[], State]) -> State:
        """`mix()`, where f is evaluated in place of `u_n`: made once for the step's coefficients, and kept."""
        if self._mixed[0] is not k:
            self._mixed = k, mix()
        return self._mixed[1]


@dataclass(frozen=True)
class Equation:
    """The equation with which a scheme is consistent: `mass u^(derivative) = f(t, u)`."""

    derivative: int = 1
    mass: Coefficient = 1
    linear: bool = False  # holds for linear f only
    partitioned: bool = False  # X' = f(Y), Y' = g(X)
    split: bool = False  # u' = f(u) + g(u)

    def __str__(self) -> str:
        mass, primes = "" if is_number(self.mass, 1) else f"({self.mass}) ", "'" * self.derivative
        if self.partitioned:
            return f"{mass}X' = f(Y), {mass}Y' = g(X)"
        return f"{mass}u{primes} = f" + (" + g" if self.split else "") + (", f linear" if self.linear else "")


@dataclass(frozen=True)
class Trained:
    """A coefficient that a network learns: an array of its own for each step that the scheme itself takes.

    A new network begins at `start`, by default that of Euler's step, plus U[low, high] of `spread`. `bound` is where
    the values stay whatever an optimiser does: an open interval, the weights of a "convex" combination, a "doubly
    stochastic" matrix, the weights of the past in a "zero-stable" multistep method.
    """

    name: str
    start: Coefficient | Callable[[int], Coefficient] = 0  # a number or nested tuples; of step n, if it depends on n
    spread: tuple[float, float] = (0.0, 0.0)
    bound: tuple[float, float] | Literal["convex", "doubly stochastic", "zero-stable"] | None = None

    def at(self, n: int) -> Coefficient:
        """Where step n starts."""
        return self.start(n) if callable(self.start) else self.start

    def shape(self, n: int = 0) -> tuple[int, ...]:
        """The shape of step n's values."""
        return np.shape(self.at(n))


class Scheme(ABC):
    """A numerical method. A subclass states what it is and defines `increment` (and `carry`, if not `u_n`)."""

    name: str = ""  # its registered name; the name of its class before that
    reference: ClassVar[str] = ""
    network: ClassVar[str] = ""  # the architecture that this scheme is, where the paper names one
    order: int = 1  # against its own equation
    stages: int = 1  # evaluations of f in one step
    steps: int = 1  # past points that it reads
    whole_past: ClassVar[bool] = False  # it reads all points since the march began, `steps` of them at least
    k: Coefficient = None  # the coefficient used when none is given for the step
    given: Mapping[str, Coefficient] = MappingProxyType({})  # the named coefficients that it was built with
    velocity: State = 0  # u'(0), for an equation of second order
    streams: tuple[str, ...] = ()  # their names, where its state has several
    stacked: ClassVar[bool] = False  # tensors of all streams are one, stream by stream along a new first dimension
    trained: tuple[Trained, ...] = ()  # the coefficients that a network learns, if not one k: then k is a dict
    euler: tuple[Trained, ...] = ()  # the same, with Euler's step as their start
    trainable: ClassVar[bool] = False  # a network learns coefficients for each step
    initial_k: tuple[float, float] = (0.0, 0.0)  # k ~ U[low, high] in a new network
    stable_k: tuple[float, float] | None = None  # zero-stable for `low < k <= high` (analysis checks it)
    makes_network: bool = True
    splits: ClassVar[bool] = False  # its right-hand side is a pair, the parts of a sum
    identity_path: ClassVar[bool] = True  # the step is u_n plus something; a carry may take the place of u_n

    def __init_subclass__(cls) -> None:
        cls.name = vars(cls).get("name", cls.__name__)

    @property
    def equation(self) -> Equation:
        """What it is consistent with."""
        return Equation()

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts of its state: `u`, a pair `X` and `Y`, or its streams."""
        return self.streams or (("X", "Y") if self.partitioned else ("u",))

    @property
    def partitioned(self) -> bool:
        """Whether it advances a pair (X, Y)."""
        return not self.streams and self.equation.partitioned

    def enter(self, u: State) -> State:
        """The streams of a march that begins with `u`."""
        return u

    def read_out(self, y: State) -> State:
        """The state `u` of the streams `y`."""
        return y

    def in_states(self, stream: str, n: int) -> Mapping[int, Coefficient]:
        """A stream at n as a sum of states `u_m`, `{m: weight}`, where it is one."""
        return {n: 1}

    def activate(self, after: Callable[[State], State], y: State) -> State:
        """A new state behind an activation: of several streams, those that are states."""
        return after(y)

    def carry(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        """The part of the step that needs no new evaluation of `f`."""
        return past[0].u

    @abstractmethod
    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        """The part of the step that evaluates `f`."""

    def zero_stable_at(self, k: float) -> bool:
        """Whether a coefficient lies where the scheme is zero-stable; it does where the scheme names no such place."""
        return self.stable_k is None or self.stable_k[0] < k <= self.stable_k[1]

    @property
    def stable_range(self) -> str:
        """`(-1, 1]`: the interval in which `k` is zero-stable, as it is written."""
        return "" if self.stable_k is None else f"({self.stable_k[0]:g}, {self.stable_k[1]:g}]"

    @property
    def invertible(self) -> bool:
        """Whether a step can be taken back."""
        return False

    def inverse(
        self, after: tuple[State, ...], rhs: RightHandSides | None, dt: Coefficient, k: Coefficient, gate: Coefficient
    ) -> State:
        """The oldest of the states before a step, from the `steps` newest ones `after` it."""
        raise TypeError(f"a step of {self.name!r} cannot be taken back")

    def lost_bits(self, k: Coefficient) -> float:
        """By how many bits an inverse step enlarges rounding."""
        return 0.0

    def starter(self) -> Scheme:
        """The one-step method for the first `steps - 1` steps, which have too little past."""
        return self

    def as_euler(self) -> Scheme:
        """The same streams at the coefficients of Euler's step: what takes a step that changes the shape."""
        method = copy.copy(self)
        method.k = {one.name: one.at(0) for one in self.euler}
        return method

    def over(self, base: Scheme) -> Scheme:
        """What this scheme is in a network whose own step is `base`: `lm` is LM's carry over it, others stay."""
        return self

    def __str__(self) -> str:
        return self.name if self.k is None else f"{self.name}(k={self.k})"

    def __repr__(self) -> str:
        """With its tableau or its coefficients, where it has them."""
        return str(self)


def name_coefficients(scheme: Scheme, **given: Coefficient) -> None:
    """Give a scheme its coefficients by name: `k` is a dict of them, and a network starts from those that are given."""
    for one in scheme.trained:
        if given[one.name] is not None:
            check_entries(scheme, one.name, given[one.name], one.shape())
    scheme.euler = scheme.trained
    scheme.given = {name: value for name, value in given.items() if value is not None}
    scheme.trained = tuple(replace(one, start=scheme.given.get(one.name, one.start)) for one in scheme.trained)
    scheme.k = {one.name: one.at(0) for one in scheme.trained}


def check_entries(scheme: Scheme, name: str, value: Coefficient, shape: tuple[int, ...]) -> None:
    """Refuse coefficients of another shape, and what are no finite numbers."""
    entries = value.detach().cpu().numpy() if is_tensor(value) else np.array(value, dtype=object)
    if entries.shape != shape:
        wanted = f"an array of shape {shape}" if shape else "one number"
        raise UserError(f"{name} of shape {entries.shape} for {scheme.name!r}: expected {wanted}")
    if not all(map(is_finite, entries.flat)):
        raise UserError(f"{name} = {shown(value)} for {scheme.name!r}: expected finite numbers")


def advance(scheme: Scheme, past: Past, dt: Coefficient = 1, k: Coefficient = None, gate: Coefficient = 1) -> State:
    """One step: `carry + gate * increment`. With gate 0 the increment is not computed.

    With too few past points it is a step of the scheme's starter.
    """
    method = scheme if len(past) >= scheme.steps else scheme.starter()
    carry = method.carry(past, dt, k)
    increment = 0 if is_number(gate, 0) else method.increment(past, dt, k)
    past[0].gate = gate
    return combine((1, carry), (gate, increment))


Take: TypeAlias = Callable[[Scheme, Past, Coefficient, Coefficient, Coefficient], State]


def march(
    scheme: Scheme,
    fs: Iterable[RightHandSides],
    u0: S,
    dt: Coefficient = 1,
    ks: Iterable[Coefficient] | None = None,
    gates: Sequence[Coefficient] | None = None,
    after: Callable[[S], S] | None = None,
    past: Sequence[Point] = (),
    transition: Scheme | None = None,
    take: Take = advance,
) -> Iterator[S]:
    """Yield `u_1, u_2, …`: one step of the scheme for each right-hand side in `fs`.

    `ks` holds one coefficient for each step with a full past; a starting step owns none. Without `ks` every
    step, the starting ones too, takes the scheme's own `k`. `gates` multiply the increments. `after` acts on
    each new state (the ReLU of post-activation networks). `past` holds the points before `u0`, newest first.
    A `transition` takes the first step instead of the scheme, where that changes the shape; it owns no `k`.
    `take` is how a step is taken: `advance`, or the same by someone who keeps less of it for a gradient.
    """
    history: Past = tuple(past)
    longest = None if scheme.whole_past else scheme.steps
    owned = iter(ks) if ks is not None else None
    u = u0
    for n, f in enumerate(fs):
        history = (Point(u, f), *history)[:longest]
        method = scheme if n > 0 or transition is None else transition
        owns = method is scheme and len(history) >= scheme.steps
        k = scheme.k if owned is None else next(owned) if owns else None
        u = take(method, history, dt, k, 1 if gates is None else gates[n])
        u = u if after is None else after(u)
        yield u
