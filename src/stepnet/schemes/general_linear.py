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
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from stepnet.arguments import checked
from stepnet.errors import UserError
from stepnet.schemes.arithmetic import (
    Coefficient,
    Difference,
    State,
    as_tensor,
    combine,
    exact,
    is_number,
    is_tensor,
    outer,
    scale,
    stacked,
    transformed,
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
from stepnet.schemes.scheme_registry import register_family, register_scheme

if TYPE_CHECKING:
    import sympy

Row = Sequence[Coefficient]
DEFAULT_STREAMS = 2
StreamCount = Annotated[int, Ge(2), Le(64)]


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


@register_scheme("hyper", aliases=("hyper_connections",))
class Hyper(GeneralLinear):
    """Static hyper-connections: s streams with U, V and B of their own in every step; read out by their mean.

    At the start each step reads one stream, in turn, all streams are kept, and f is added to every one: Euler s times.
    """

    reference = "Zhu, Huang, Huang, Zhang, Guo, Liu 2024 (hyper-connections)"
    stacked: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        streams: StreamCount = DEFAULT_STREAMS,
        U: Coefficient = None,
        V: Coefficient = None,
        B: Coefficient = None,
    ) -> None:
        self.streams = self.states = tuple(f"u{j + 1}" for j in range(streams))
        unit = [tuple(int(i == j) for i in range(streams)) for j in range(streams)]
        self.learned = self.declared(unit)
        if streams != DEFAULT_STREAMS:
            self.name = f"{type(self).name}{streams}"  # what builds it again
        super().__init__(U=U, V=V, B=B)
        self.check_consistency()

    def check_consistency(self) -> None:
        """Warn about a V that does not keep equal streams equal; what a network learned may still be analysed."""
        for j, row in enumerate(exact(self.arguments).get("V", ())):
            if _differs(total := sum(row), 1) and not hasattr(total, "free_symbols"):
                warnings.warn(
                    f"V for {self.name!r} is not consistent: its row {j + 1} sums to {total}, expected 1; "
                    "the method solves no differential equation",
                    stacklevel=4,
                )

    def declared(self, unit: list[tuple[int, ...]]) -> tuple[LearnedCoefficient, ...]:
        """U, V and B, from the rows of the identity matrix."""
        return (
            LearnedCoefficient("U", partial(_in_turn, unit), in_time="value"),
            LearnedCoefficient("V", tuple(unit), in_time="rate"),
            LearnedCoefficient("B", (1,) * len(unit), in_time="value"),
        )

    def matrices(self, k: dict[str, Coefficient]) -> tuple[Row, Sequence[Row], Row]:
        return k["U"], k["V"], k["B"]

    def carry(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        y = past[0].u
        return self.transformed((self.k if k is None else k)["V"], y) if is_tensor(y) else super().carry(past, dt, k)

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        y = past[0].u
        if not is_tensor(y):
            return super().increment(past, dt, k)
        k = self.k if k is None else k
        f, weights = past[0].rhs(self.transformed(k["U"], y), 0, 0), combine((dt, as_tensor(k["B"], y)))
        if isinstance(f, Difference):  # exactly the block's own result where a weight is 1
            return Difference(f.end + outer(weights - 1, f.value), f.start)
        return outer(weights, f)

    def transformed(self, matrix: Coefficient, y: State) -> State:
        """`M y` of stacked streams."""
        return transformed(as_tensor(matrix, y), y)

    def activate(self, after: Callable[[State], State], y: State) -> State:
        return after(y) if is_tensor(y) else super().activate(after, y)

    def enter(self, u: State) -> State:
        return stacked(u, len(self.streams)) if is_tensor(u) else (u,) * len(self.streams)

    def read_out(self, y: State) -> State:
        if is_tensor(y):
            return combine((1, y[0]), (Fraction(1, len(self.streams)), (y - y[0]).sum(0)))
        return _mean([Fraction(1, len(y))] * len(y), y)


@register_scheme("mhc", aliases=("manifold_hyper_connections",))
class MHC(Hyper):
    """Hyper-connections with a doubly stochastic V and a convex U: consistent and zero-stable whatever is learned.

    Rows of V that sum to 1 keep equal streams equal (`V q = q`), columns that do keep their mean, and its powers are
    bounded (Birkhoff): `mass = s / sum_j B_j`.
    """

    reference = "Xie et al. 2025 (mHC)"

    def declared(self, unit: list[tuple[int, ...]]) -> tuple[LearnedCoefficient, ...]:
        u, v, b = super().declared(unit)
        return replace(u, bound="convex"), replace(v, bound="doubly stochastic"), replace(b, bound=(0, 2))

    def check_consistency(self) -> None:
        for name in self.arguments.keys() & {"U", "V"}:
            _check_stochastic(name, np.array(exact(self.arguments)[name], dtype=object))

    def weighted(self, row: Row, y: State) -> State:
        return _mean(row, y)

    def transformed(self, matrix: Coefficient, y: State) -> State:
        return combine((1, y[0]), (1, super().transformed(matrix, y - y[0])))


register_family("hyper", lambda streams: Hyper(streams))
register_family("mhc", lambda streams: MHC(streams))


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
        return Equation(mass=0 if _differs(sum(row), 1) else 1 + sum(j * a for j, a in enumerate(row)))

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


def _in_turn(rows: Sequence[Row], n: int) -> Row:
    return rows[n % len(rows)]


def _padded(row: tuple[Coefficient, ...], n: int) -> Row:
    """`row`, filled up with zeros for the older states, or cut, to the n + 1 that step n has."""
    return (*row, *(0,) * n)[: max(n + 1, 1)]


def _check_stochastic(name: str, weights: NDArray[np.object_]) -> None:
    """Refuse weights that are negative or whose rows (of V, its columns too) do not sum to 1."""
    for axis in range(weights.ndim):
        for total in np.atleast_1d(weights.sum(axis=axis)):
            if _differs(total, 1):
                what = "rows and columns" if weights.ndim > 1 else "weights"
                raise UserError(f"{name} for 'mhc': {what} must sum to 1, and one sums to {total}; take 'hyper'")
    if any(not hasattr(weight, "free_symbols") and weight < 0 for weight in weights.ravel().tolist()):
        raise UserError(f"{name} for 'mhc': expected no negative weights; take 'hyper'")


def _differs(total: Coefficient, number: int) -> bool:
    """Whether a sum is another number; to the rounding of single precision, where it is no symbol."""
    rest = total - number
    return bool(rest.expand() != 0 if hasattr(rest, "expand") else abs(rest) > 1e-6)


def _mean(weights: Row, y: State) -> State:
    """`sum_i w_i y_i` of weights that sum to 1, as `y_0 + sum_i w_i (y_i - y_0)`: exact where all streams are equal."""
    others = [(weight, combine((1, part), (-1, y[0]))) for weight, part in zip(weights[1:], y[1:], strict=True)]
    return combine((1, y[0]), *others)


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
