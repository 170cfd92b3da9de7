"""General linear methods: a state of several streams, of which a step is a linear map (Butcher 1966).

    Y = U y_n,    y_{n+1} = V y_n + B dt f(Y),    u_n = w . y_n

Residual connections in use today are methods of this class with learned U, V and B. Each scheme here states the
three matrices from its coefficients, how a state enters the streams (`y_0 = q u_0`) and how it is read out.

    consistent      V q = q and U q = 1, and u follows Y = U y: then it solves mass u' = f
    zero-stable     the powers of V are bounded
    invertible      V has an inverse and U V^-1 B = 0: then Y = U V^-1 y_{n+1}, and the step can be taken back
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from stepnet.schemes.arithmetic import (
    Coefficient,
    State,
    combine,
    exact,
    is_number,
    scale,
    weighted_sum,
)
from stepnet.schemes.core import (
    Equation,
    LearnedCoefficient,
    Past,
    RightHandSide,
    RightHandSides,
    Scheme,
    check_entries,
    name_coefficients,
)
from stepnet.schemes.march_plan import symbols_of
from stepnet.schemes.runge_kutta import Euler
from stepnet.schemes.scheme_registry import register_scheme

if TYPE_CHECKING:
    import sympy

Row = Sequence[Coefficient]


class GeneralLinear(Scheme):
    """A method of one evaluation on s streams; its coefficients `k` are a dict, by name."""

    trainable: ClassVar[bool] = True
    states: tuple[str, ...] = ("u",)  # the streams that are states; others are a velocity, or u_0

    def __init__(self, **arguments: Coefficient) -> None:
        name_coefficients(self, **arguments)

    @abstractmethod
    def matrices(self, k: dict[str, Coefficient]) -> tuple[Row, Sequence[Row], Row]:
        """`U`, `V` and `B` of a step."""

    @abstractmethod
    def enter(self, u: State) -> State:
        """`q u`: the streams of a march that begins with `u`."""

    @abstractmethod
    def read_out(self, y: State) -> State:
        """`w . y`."""

    def activate(self, after: Callable[[State], State], y: State) -> State:
        return tuple(after(u) if name in self.states else u for name, u in zip(self.streams, y, strict=True))

    def carry(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        k = self.k if k is None else k
        u, v, _ = self.matrices(k)
        return tuple(self.argument(past, k, u) if row is u else self.weighted(row, past[0].u) for row in v)

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        k = self.k if k is None else k
        u, _, b = self.matrices(k)
        f = past[0].rhs(self.argument(past, k, u), 0, 0)
        return tuple(combine((scale(weight, dt), f)) for weight in b)

    def argument(self, past: Past, k: Coefficient, row: Row) -> State:
        """`Y = U y`, where f is evaluated; kept, since a stream may be carried on from there."""
        return past[0].mixed_by(k, lambda: self.weighted(row, past[0].u))

    def weighted(self, row: Row, y: State) -> State:
        """`sum_i w_i y_i`."""
        return combine(*zip(row, y, strict=True))

    @property
    def invertible(self) -> bool:
        return inverse_matrix(type(self)) is not None

    @property
    def why_not_invertible(self) -> str:
        return "" if self.invertible else "U V^-1 B is not 0, so y_{n+1} does not say where f was evaluated"

    def inverse(
        self, after: tuple[State, ...], rhs: RightHandSides | None, dt: Coefficient, k: Coefficient, gate: Coefficient
    ) -> State:
        """`y_n = V^-1 (y_{n+1} - gate B dt f(Y))` with `Y = U V^-1 y_{n+1}`."""
        k = self.k if k is None else k
        (u, _, b), back, y = self.matrices(k), self.undone(k), after[0]
        if not is_number(gate, 0):
            before = tuple(self.weighted(row, y) for row in back)
            f = combine((scale(gate, dt), cast(RightHandSide, rhs)(self.weighted(u, before), 0, 0)))
            y = tuple(combine((1, part), (-weight, f)) for part, weight in zip(y, b, strict=True))
        return tuple(self.weighted(row, y) for row in back)

    def lost_bits(self, k: Coefficient) -> float:
        """By the largest entry of V^-1."""
        try:
            largest = max(abs(float(entry)) for row in self.undone(self.k if k is None else k) for entry in row)
        except ZeroDivisionError:
            return math.inf
        return max(0.0, math.log2(largest))

    def undone(self, k: dict[str, Coefficient]) -> Sequence[Row]:
        """`V^-1` at these coefficients."""
        back = inverse_matrix(type(self))
        assert back is not None, f"{self.name} has no inverse"
        return back(*k.values())

    @property
    def equation(self) -> Equation:
        """`mass u' = f`, where `1/mass = U P B`; mass 0 stands for no such equation.

        P projects on the eigenvectors of V to the eigenvalue 1: over long times `Y = U y` moves by `U P B dt f(Y)` in
        a step, and what is read out has to move with it, `w P B = U P B`.
        """
        import sympy

        u, v, b = (sympy.Matrix(np.array(part, dtype=object)) for part in self.matrices(exact(self.k)))
        q = sympy.Matrix(self.enter(sympy.Integer(1)))
        w = sympy.Matrix([self.read_out(tuple(row)) for row in sympy.eye(v.rows).tolist()])
        moved = _projection(v) * b
        rate = (u.T * moved)[0]
        rest = [*(v * q - q), (u.T * q)[0] - 1, (w.T * moved)[0] - rate]
        if any(sympy.simplify(part) != 0 for part in rest) or sympy.simplify(rate) == 0:
            return Equation(mass=0)
        mass = sympy.cancel(1 / rate)
        return Equation(mass=Fraction(int(mass.p), int(mass.q)) if mass.is_Rational else mass)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value}' for name, value in self.arguments.items())})"


@register_scheme("x0", aliases=("initial_residual",))
class X0(GeneralLinear):
    """`u_{n+1} = Y + dt f(Y)` with `Y = r u_n + x u_0`: every step mixes the first state in again.

    Zero-stable for -1 <= r < 1, and at r = 1 with x = 0, Euler. With |r| < 1 it solves no differential equation: a step
    is forgotten like r^n, and the states relax towards a balance of `u_0` and `f`.
    """

    reference = "Chen, Wei, Huang, Ding, Li 2020 (GCNII); Karpathy 2025 (nanochat)"
    streams = ("u", "u0")
    learned = (LearnedCoefficient("r", 1, in_time="rate"), LearnedCoefficient("x", 0, in_time="rate"))

    def __init__(self, r: Coefficient = None, x: Coefficient = None) -> None:
        super().__init__(r=r, x=x)

    def matrices(self, k: dict[str, Coefficient]) -> tuple[Row, Sequence[Row], Row]:
        read = (k["r"], k["x"])
        return read, (read, (0, 1)), (1, 0)

    def in_states(self, stream: str, n: int) -> Mapping[int, Coefficient]:
        return {n: 1} if stream == "u" else {0: 1}

    def enter(self, u: State) -> State:
        return u, u

    def read_out(self, y: State) -> State:
        return y[0]


@register_scheme("momentum", aliases=("heavy_ball",))
class Momentum(GeneralLinear):
    """`v_{n+1} = b v_n + dt f(u_n)`, `u_{n+1} = u_n + v_{n+1}`: the heavy ball with its velocity as a stream.

    From rest it is `lm` with k = -b. Consistent with `(1 - b) u' = f`; zero-stable for -1 <= b < 1; b = 0 is Euler.
    Momentum networks, whose `b` is not learned, multiply f by 1 - b, and so solve `u' = f`.
    """

    reference = "Polyak 1964; Sander, Ablin, Blondel, Peyré 2021 (momentum networks)"
    streams = ("u", "v")
    learned = (LearnedCoefficient("b", 0, in_time="ratio"),)

    def __init__(self, b: Coefficient = None) -> None:
        super().__init__(b=b)

    def matrices(self, k: dict[str, Coefficient]) -> tuple[Row, Sequence[Row], Row]:
        b = k["b"]
        return (1, 0), ((1, b), (0, b)), (1, 1)

    def in_states(self, stream: str, n: int) -> Mapping[int, Coefficient]:
        return {n: 1} if stream == "u" else {n: 1, n - 1: -1}

    def enter(self, u: State) -> State:
        return u, 0

    def read_out(self, y: State) -> State:
        return y[0]


@register_scheme("nesterov")
class Nesterov(Momentum):
    """The same with f where the velocity leads: `v_{n+1} = b v_n + dt f(u_n + b v_n)`, `u_{n+1} = u_n + v_{n+1}`."""

    reference = "Nesterov 1983; Li, Yang, Xu 2018 (networks from optimisation)"

    def matrices(self, k: dict[str, Coefficient]) -> tuple[Row, Sequence[Row], Row]:
        ahead = (1, k["b"])
        return ahead, (ahead, (0, k["b"])), (1, 1)


@register_scheme("dense", aliases=("denseformer",))
class Dense(Scheme):
    """`u_{n+1} = Y + dt f(Y)` with `Y = sum_j a_j u_{n-j}`, over all states since the march began.

    A network learns n + 1 weights for step n (none for the first); DenseFormer mixes once more, after its last block.
    With fixed weights it is Dahlquist's one-leg method; a = (1,) is Euler.
    """

    reference = "Pagliardini, Mohtashami, Fleuret, Jaggi 2024 (DenseFormer)"
    trainable: ClassVar[bool] = True
    whole_past: ClassVar[bool] = True

    def __init__(self, a: Coefficient = None) -> None:
        row = (1,) if a is None else a
        check_entries(self, "a", row, (max(1, len(row) if hasattr(row, "__len__") else 1),))
        self.learned = (LearnedCoefficient("a", partial(_padded, tuple(row))),)
        self.euler_start = (LearnedCoefficient("a", partial(_padded, (1,))),)
        self.arguments = {} if a is None else {"a": row}
        self.k, self.steps = {"a": row}, len(row)
        warn_unless_consistent(self, "a", exact(self.k)["a"])

    def carry(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        return self.argument(past, k)

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        return combine((dt, past[0].rhs(self.argument(past, k), 0, 0)))

    def argument(self, past: Past, k: Coefficient) -> State:
        """`Y`; the first step has nothing to mix."""
        k = self.k if k is None else k
        if len(past) == 1:
            return past[0].u
        return past[0].mixed_by(k, lambda: weighted_sum(k["a"], tuple(point.u for point in past)))

    def starter(self) -> Scheme:
        return Euler()

    @property
    def equation(self) -> Equation:
        """The weights sum to 1 where it is consistent; then `mass = 1 + sum_j j a_j`."""
        row = exact(self.k)["a"]
        return Equation(mass=0 if differs(sum(row), 1) else 1 + sum(j * a for j, a in enumerate(row)))

    def __str__(self) -> str:
        return f"{self.name}(a={self.k['a']})" if self.arguments else self.name


@cache
def inverse_matrix(kind: type[GeneralLinear]) -> Callable[..., Sequence[Row]] | None:
    """`V^-1` as a function of the coefficients, where V has an inverse and `U V^-1 B = 0`; otherwise None.

    Then `U V^-1 y_{n+1} = U y_n`: the new streams still say where f was evaluated.
    """
    import sympy

    scheme = kind()
    k = symbols_of(scheme)
    u, v, b = (sympy.Matrix(np.array(part, dtype=object)) for part in scheme.matrices(k))
    if v.det() == 0 or (u.T * v.inv() * b)[0].cancel() != 0:
        return None
    back: Callable[..., Sequence[Row]] = sympy.lambdify(list(k.values()), v.inv().tolist(), "math")
    return back


def _padded(row: tuple[Coefficient, ...], n: int) -> Row:
    """`row`, filled up with zeros for the older states, or cut, to the n + 1 that step n has."""
    return (*row, *(0,) * n)[: max(n + 1, 1)]


def differs(total: Coefficient, number: int) -> bool:
    """Whether a sum is another number; to the rounding of single precision, where it is no symbol."""
    rest = total - number
    return bool(rest.expand() != 0 if hasattr(rest, "expand") else abs(rest) > 1e-6)


def warn_unless_consistent(scheme: Scheme, name: str, weights: Row, which: str = "it sums") -> None:
    """Warn about weights whose sum is not 1; not for symbols."""
    if differs(total := sum(weights), 1) and not hasattr(total, "free_symbols"):
        warnings.warn(
            f"{name} for {scheme.name!r} is not consistent: {which} to {total}, expected 1; "
            "the method solves no differential equation",
            stacklevel=5,
        )


def _projection(v: sympy.Matrix) -> sympy.Matrix:
    """The projection on the eigenvectors of V to the eigenvalue 1: the mean of V^n over all n, where it is bounded."""
    import sympy

    right = (v - sympy.eye(v.rows)).nullspace()
    left = (v.T - sympy.eye(v.rows)).nullspace()
    if not right:
        return sympy.zeros(*v.shape)
    columns, rows = sympy.Matrix.hstack(*right), sympy.Matrix.hstack(*left).T
    gram = rows * columns
    if sympy.simplify(gram.det()) == 0:  # a Jordan block: the powers of V grow
        return sympy.zeros(*v.shape)
    return (columns * gram.inv() * rows).applyfunc(sympy.cancel)
