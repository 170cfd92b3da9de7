"""The definition of a scheme, and the loop that marches it.

    u_{n+1} = carry(past, dt, k) + increment(past, dt, k)

`carry` combines known states; `increment` evaluates `f`, and is not called when a gate drops the step. A network
stage (blocks as right-hand sides), `stepnet.solve` (any right-hand side) and `stepnet.analysis` (symbols) all call
`advance`, which takes one step, or `march`, which repeats it.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import ClassVar, Literal, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from stepnet.arguments import shown
from stepnet.errors import UserError
from stepnet.schemes.arithmetic import Coefficient, State, combine, is_finite, is_number, is_tensor

S = TypeVar("S")  # the type of a march's states
T = TypeVar("T")


class RightHandSide(Protocol):
    """The right-hand side of one step, from time `t_n`."""

    def __call__(self, u: State, c: Coefficient, i: int, /) -> State:
        """`f(t_n + c dt, u)`, the `i`-th evaluation in the step.

        A network's block keeps separate normalisation statistics for each `i`.
        """
        ...


RightHandSides: TypeAlias = "RightHandSide | tuple[RightHandSide, ...]"  # of two: (f, g)
Past: TypeAlias = "tuple[Point, ...]"  # newest first: past[0] is u_n, past[1] is u_{n-1}


class Point:
    """A state `u_n` with its right-hand side; `f = rhs(u_n)` is evaluated on first access and cached."""

    __slots__ = ("_f", "_known", "_mixed", "gate", "rhs", "u")

    def __init__(self, u: State, rhs: RightHandSides | None = None) -> None:
        self.u = u
        self.rhs = cast(RightHandSide, rhs)
        self.gate: Coefficient = 1  # set by `advance`; later steps read `gate f`
        self._f: State = 0  # the value for a point without a right-hand side
        self._known = rhs is None
        self._mixed: tuple[object, State] = None, 0

    @property
    def pair(self) -> tuple[RightHandSide, ...]:
        """The right-hand sides `(f, g)` of a partitioned or split system."""
        return cast("tuple[RightHandSide, ...]", self.rhs)

    @property
    def f(self) -> State:
        """`gate f(t_n, u_n)`; 0, without an evaluation, if the step was dropped."""
        if is_number(self.gate, 0):
            return 0
        if not self._known:
            self._f = self.rhs(self.u, 0, 0)
            self._known = True
        return self._f if is_number(self.gate, 1) else combine((self.gate, self._f))

    def mixed_by(self, k: object, mix: Callable[[], State]) -> State:
        """Return `mix()`, the state at which f is evaluated, cached for the coefficients `k`."""
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


InTime = Literal["value", "rate", "ratio"]
VARYING_SIZE = 0.01  # at the start, of the part of a coefficient that depends on the state


@dataclass(frozen=True)
class LearnedCoefficient:
    """A coefficient that a network learns: a separate array for each step that the scheme itself takes.

    A new network starts from `start`, by default that of Euler's step, plus noise from U[low, high] of `spread`.
    `bound` is the set in which the values stay during training: an open interval, the weights of a "convex"
    combination, a "doubly stochastic" matrix, the past's weights in a "zero-stable" multistep method.
    `in_time` says what stays the same when the steps `h_n` become shorter or longer: the "value"; its "rate", which is
    (value - Euler's) / h_n; the "ratio" of displacements, value * h_{n-1} / h_n. None: that is not defined.
    """

    name: str
    start: Coefficient | Callable[[int], Coefficient] = 0  # a number or nested tuples, or a function of n
    spread: tuple[float, float] = (0.0, 0.0)
    bound: tuple[float, float] | Literal["convex", "doubly stochastic", "zero-stable"] | None = None
    in_time: InTime | None = None
    varies: bool = False  # in a network it is this value plus `s tanh(norm(y) W)`, with learned s and W

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what is learned."""
        return (self.name, *varying_names(self.name)) if self.varies else (self.name,)

    def parts(self, width: int | None) -> tuple[LearnedCoefficient, ...]:
        """What is learned, for states of `width` features: the value, and W = 0 and s = 0.01 if it varies."""
        if not self.varies:
            return (self,)
        assert width is not None
        weight, size = varying_names(self.name)
        zeros = np.zeros((width, *self.shape()[1:]))
        return self, LearnedCoefficient(weight, zeros), LearnedCoefficient(size, VARYING_SIZE)

    def at(self, n: int) -> Coefficient:
        """The initial value at step n."""
        return self.start(n) if callable(self.start) else self.start

    def shape(self, n: int = 0) -> tuple[int, ...]:
        """The shape of the coefficient at step n."""
        return np.shape(self.at(n))


def varying_names(name: str) -> tuple[str, str]:
    """The names of W and s of a coefficient that varies with the state."""
    return f"{name}_weight", f"{name}_size"


def by_name(ks: Mapping[str, T]) -> dict[str, dict[str, T]]:
    """Group the result of `coefficients` by the name of the coefficient (`k` if it has none), then by layer."""
    groups: dict[str, dict[str, T]] = {}
    for key, value in ks.items():
        layer, name = layer_and_name(key)
        groups.setdefault(name, {})[layer] = value
    return groups


def layer_and_name(key: str) -> tuple[str, str]:
    """Return `("blocks.1", "V")` for `blocks.1:V`; a coefficient without a name is `k`."""
    named = re.fullmatch(r"(.*):(\w+(?:\[\d+\])?)", key, re.DOTALL)
    return (named[1], named[2]) if named else (key, "k")


class Scheme(ABC):
    """A numerical method. A subclass states what it is and defines `increment` (and `carry`, if not `u_n`)."""

    name: str = ""  # the registered name, or the class's before registration
    reference: ClassVar[str] = ""
    network: ClassVar[str] = ""  # the architecture that the paper identifies with the scheme
    order: int = 1  # for its `equation`
    stages: int = 1  # evaluations of f in one step
    steps: int = 1  # number of past points it reads
    whole_past: ClassVar[bool] = False  # reads all points since the march began, at least `steps`
    k: Coefficient = None  # the default coefficient of a step
    arguments: Mapping[str, Coefficient] = MappingProxyType({})  # named coefficients passed to the constructor
    velocity: State = 0  # u'(0), for an equation of second order
    streams: tuple[str, ...] = ()  # names of the streams, if the state has several
    stacked: ClassVar[bool] = False  # streams are one tensor, stacked along a new first dimension
    learned: tuple[LearnedCoefficient, ...] = ()  # learned by a network; then k is a dict
    euler_start: tuple[LearnedCoefficient, ...] = ()  # the same coefficients, starting at Euler's step
    trainable: ClassVar[bool] = False  # a network learns coefficients for every step
    initial_k: tuple[float, float] = (0.0, 0.0)  # k ~ U[low, high] in a new network
    stable_k: tuple[float, float] | None = None  # zero-stable for `low < k <= high` (analysis checks it)
    makes_network: bool = True
    splits: bool = False  # the right-hand side is a pair `(f, g)`, the terms of a sum
    identity_path: ClassVar[bool] = True  # a step is u_n plus an increment; LM may replace u_n by its carry

    def __init_subclass__(cls) -> None:
        cls.name = vars(cls).get("name", cls.__name__)

    @property
    def equation(self) -> Equation:
        """The differential equation with which the scheme is consistent."""
        return Equation()

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts of a state: `u`, the pair `X`, `Y`, or the streams."""
        return self.streams or (("X", "Y") if self.partitioned else ("u",))

    @property
    def partitioned(self) -> bool:
        """Whether the state is a pair (X, Y)."""
        return not self.streams and self.equation.partitioned

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the right-hand sides: `f`, or `f` and `g` of a pair or of a sum."""
        return ("f", "g") if self.splits or self.partitioned else ("f",)

    @property
    def takes_tensors(self) -> bool:
        """Whether coefficients of several entries come as one tensor beside tensors, or as rows of numbers."""
        return self.stacked or self.whole_past

    def enter(self, u: State) -> State:
        """Return the initial streams `y_0` for the state `u`."""
        return u

    def read_out(self, y: State) -> State:
        """Return the state `u` of the streams `y`."""
        return y

    def in_states(self, stream: str, n: int) -> Mapping[int, Coefficient]:
        """Write a stream at n as a sum of states `u_m`, `{m: weight}`."""
        return {n: 1}

    def activate(self, after: Callable[[State], State], y: State) -> State:
        """Apply the activation `after` to a new state; with several streams, to those that are states."""
        return after(y)

    def carry(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        """The part of the step that needs no new evaluation of `f`."""
        return past[0].u

    @abstractmethod
    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        """The part of the step that evaluates `f`."""

    def zero_stable_at(self, k: float) -> bool:
        """Whether the scheme is zero-stable at k; True if it declares no `stable_k`."""
        return self.stable_k is None or self.stable_k[0] < k <= self.stable_k[1]

    @property
    def stable_range(self) -> str:
        """The interval of zero-stable k as text: `(-1, 1]`."""
        return "" if self.stable_k is None else f"({self.stable_k[0]:g}, {self.stable_k[1]:g}]"

    @property
    def invertible(self) -> bool:
        """Whether `inverse` is defined."""
        return False

    @property
    def why_not_invertible(self) -> str:
        """Why a step has no inverse, if known."""
        return ""

    def inverse(
        self, after: tuple[State, ...], rhs: RightHandSides | None, dt: Coefficient, k: Coefficient, gate: Coefficient
    ) -> State:
        """Return the oldest state before a step from the `steps` newest states `after` it."""
        raise TypeError(f"scheme {self.name!r} has no inverse step")

    def lost_bits(self, k: Coefficient) -> float:
        """Bits of precision lost by an inverse step."""
        return 0.0

    def starter(self) -> Scheme:
        """Return the one-step method for the first `steps - 1` steps, which lack past points."""
        return self

    def as_euler(self) -> Scheme:
        """Return the scheme with the coefficients of Euler's step; it takes steps that change the shape."""
        method = copy.copy(self)
        method.k = {one.name: one.at(0) for one in self.euler_start}
        return method

    def over(self, base: Scheme) -> Scheme:
        """Return this scheme for a network whose step is `base`: LM's carry over `base` for `lm`, else unchanged."""
        return self

    def __str__(self) -> str:
        return self.name if self.k is None else f"{self.name}(k={self.k})"

    def __repr__(self) -> str:
        """Subclasses add their tableau or coefficients."""
        return str(self)


def name_coefficients(scheme: Scheme, **arguments: Coefficient) -> None:
    """Set `k` to a dict of named coefficients; a network starts from those that are not None."""
    for one in scheme.learned:
        if arguments[one.name] is not None:
            check_entries(scheme, one.name, arguments[one.name], one.shape())
    scheme.euler_start = scheme.learned
    scheme.arguments = {name: value for name, value in arguments.items() if value is not None}
    scheme.learned = tuple(replace(one, start=scheme.arguments.get(one.name, one.start)) for one in scheme.learned)
    scheme.k = {one.name: one.at(0) for one in scheme.learned}


def check_entries(scheme: Scheme, name: str, value: Coefficient, shape: tuple[int, ...]) -> None:
    """Raise unless the coefficients have this shape and are finite."""
    entries = value.detach().cpu().numpy() if is_tensor(value) else np.array(value, dtype=object)
    if entries.shape != shape:
        wanted = f"an array of shape {shape}" if shape else "one number"
        raise UserError(f"{name} of shape {entries.shape} for {scheme.name!r}: expected {wanted}")
    if not all(map(is_finite, entries.flat)):
        raise UserError(f"{name} = {shown(value)} for {scheme.name!r}: expected finite numbers")


def advance(scheme: Scheme, past: Past, dt: Coefficient = 1, k: Coefficient = None, gate: Coefficient = 1) -> State:
    """Take one step, `carry + gate * increment`; with gate 0 the increment is not computed.

    With too few past points, the scheme's starter takes the step.
    """
    method = scheme if len(past) >= scheme.steps else scheme.starter()
    carry = method.carry(past, dt, k)
    increment = 0 if is_number(gate, 0) else method.increment(past, dt, k)
    past[0].gate = gate
    return combine((1, carry), (gate, increment))


def stochastic_gate(eta: Coefficient, mean: Coefficient, dt: Coefficient = 1) -> Coefficient:
    """`m + (eta - m) / sqrt(dt)`: the gate of a stochastic step (paper, section 3.1), eta of mean m.

    The fluctuation is scaled like Brownian motion, `dt gate = dt m + sqrt(dt) (eta - m)`, so that the step is one of
    `dX = m f dt + sqrt(Var eta) f dB`. At dt = 1 the gate is eta itself: stochastic depth (eta is 0 or 1) and
    shake-shake (eta uniform) as published. At any other dt a gate with eta = 0 is not 0, and no block can be skipped.
    """
    return eta if is_number(dt, 1) else mean + (eta - mean) / dt ** Fraction(1, 2)


StepFunction: TypeAlias = Callable[[Scheme, Past, Coefficient, Coefficient, Coefficient], State]


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
    step: StepFunction = advance,
) -> Iterator[S]:
    """Yield `u_1, u_2, …`: one step of the scheme for each right-hand side in `fs`.

    `ks` holds one coefficient for each step with a full past; a starting step has none. Without `ks`, all steps use
    the scheme's `k`. `gates` multiply the increments. `after` is applied to each new state (the ReLU of
    post-activation networks). `past` holds the points before `u0`, newest first. If the first step changes the shape,
    `transition` takes it instead of the scheme; it has no `k`.
    `step` computes each step: `advance`, or a function that does the same and saves less for the gradient.
    """
    history: Past = tuple(past)
    longest = None if scheme.whole_past else scheme.steps
    coefficients = iter(ks) if ks is not None else None
    u = u0
    for n, f in enumerate(fs):
        history = (Point(u, f), *history)[:longest]
        method = scheme if n > 0 or transition is None else transition
        full_past = method is scheme and len(history) >= scheme.steps
        k = scheme.k if coefficients is None else next(coefficients) if full_past else None
        u = step(method, history, dt, k, 1 if gates is None else gates[n])
        u = u if after is None else after(u)
        yield u
