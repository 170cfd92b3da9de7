"""Streams side by side: hyper-connections and their relatives.

The state is s streams of the same shape, in a network stacked in one tensor. They start equal; their mean is read out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Annotated, ClassVar

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
    is_tensor,
    is_traced,
    outer,
    stacked,
    transformed,
    without_autocast,
)
from stepnet.schemes.core import LearnedCoefficient, Past, varying_names
from stepnet.schemes.general_linear import GeneralLinear, Row, differs, warn_unless_consistent
from stepnet.schemes.scheme_registry import register_family, register_scheme

DEFAULT_STREAMS = 2
StreamCount = Annotated[int, Ge(2), Le(64)]


@register_scheme("hyper", aliases=("hyper_connections",))
class Hyper(GeneralLinear):
    """Static hyper-connections: s streams with U, V and B of their own in every step; read out by their mean.

    At the start each step reads one stream, in turn, all streams are kept, and f is added to every one: Euler s times.
    The published networks read out the sum, which is s times the mean.
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
        given = {"U": U, "V": V, "B": B}
        super().__init__(**{one.name: given[one.name] for one in self.learned})
        self.check_consistency()

    def check_consistency(self) -> None:
        """Warn about U or V that take equal streams elsewhere; what a network learned may still be analysed."""
        given = exact(self.arguments)
        warn_unless_consistent(self, "U", given.get("U", (1,)))
        for j, row in enumerate(given.get("V", ())):
            warn_unless_consistent(self, "V", row, f"its row {j + 1} sums")

    def declared(self, unit: list[tuple[int, ...]]) -> tuple[LearnedCoefficient, ...]:
        """U, V and B, from the rows of the identity matrix."""
        return (
            LearnedCoefficient("U", partial(in_turn, unit), in_time="value"),
            LearnedCoefficient("V", tuple(unit), in_time="rate"),
            LearnedCoefficient("B", (1,) * len(unit), in_time="value"),
        )

    def matrices(self, k: dict[str, Coefficient]) -> tuple[Row, Sequence[Row], Row]:
        return k["U"], k["V"], k["B"]

    def at(self, name: str, y: State, k: dict[str, Coefficient]) -> State:
        """U, V or B as a tensor, for streams stacked in the tensor `y`."""
        return as_tensor(k[name], y)

    def carry(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        y, k = past[0].u, self.k if k is None else k
        return self.transformed(self.at("V", y, k), y) if is_tensor(y) else super().carry(past, dt, k)

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        y = past[0].u
        if not is_tensor(y):
            return super().increment(past, dt, k)
        k = self.k if k is None else k
        f, weights = past[0].rhs(self.transformed(self.at("U", y, k), y), 0, 0), combine((dt, self.at("B", y, k)))
        if isinstance(f, Difference):  # exactly the block's own result where a weight is 1
            return Difference(f.end + outer(weights - 1, f.value), f.start)
        return outer(weights, f)

    def transformed(self, matrix: Coefficient, y: State) -> State:
        """`M y` of stacked streams."""
        return transformed(matrix, y)

    def activate(self, after: Callable[[State], State], y: State) -> State:
        return after(y) if is_tensor(y) else super().activate(after, y)

    def enter(self, u: State) -> State:
        return stacked(u, len(self.streams)) if is_tensor(u) else (u,) * len(self.streams)

    def read_out(self, y: State) -> State:
        if is_tensor(y):
            return combine((1, y[0]), (Fraction(1, len(self.streams)), (y - y[0]).sum(0)))
        return weighted_mean([Fraction(1, len(y))] * len(y), y)


@register_scheme("mhc", aliases=("manifold_hyper_connections",))
class MHC(Hyper):
    """Hyper-connections with a doubly stochastic V and a convex U: consistent and zero-stable whatever is learned.

    Rows of V that sum to 1 keep equal streams equal (`V q = q`), columns that do keep their mean, and its powers are
    bounded (Birkhoff): `mass = s / sum_j B_j`. The published matrices depend on the state, and U is a sigmoid, whose
    weights need not sum to 1. In a network weights of U and V start at e^-6 or more: a softmax cannot learn from 0.
    """

    reference = "Xie et al. 2025 (mHC)"

    def declared(self, unit: list[tuple[int, ...]]) -> tuple[LearnedCoefficient, ...]:
        u, v, b = super().declared(unit)
        return replace(u, bound="convex"), replace(v, bound="doubly stochastic"), replace(b, bound=(0, 2))

    def check_consistency(self) -> None:
        for name, weights in exact(self.arguments).items():
            if name != "B":
                check_stochastic(name, np.array(weights, dtype=object))
            elif not all(hasattr(weight, "free_symbols") or 0 < weight < 2 for weight in weights):
                raise UserError("B for 'mhc': expected weights between 0 and 2; take 'hyper'")

    def weighted(self, row: Row, y: State) -> State:
        return weighted_mean(row, y)

    def transformed(self, matrix: Coefficient, y: State) -> State:
        return combine((1, y[0]), (1, super().transformed(matrix, y - y[0])))


@register_scheme("altup", aliases=("alternating_updates",))
class AltUp(Hyper):
    """Predict all streams, evaluate f at the first, correct all: `y^ = V y_n`, `y_{n+1} = y^ + B dt f(y^_1)`.

    With `a = y^_1 + dt f(y^_1)`, the layer's output, it is `y^ + B (a - y^_1)`: hyper-connections whose U is the first
    row of V. So does Gemma 3n, with matrices that depend on the state; AltUp evaluates the layer at the stream before
    its prediction, each layer another one. Both widen the state by the streams; here each is as wide as the state.
    """

    reference = "Baykal et al. 2023 (AltUp); Gemma team 2025 (Gemma 3n)"

    @checked
    def __init__(self, streams: StreamCount = DEFAULT_STREAMS, V: Coefficient = None, B: Coefficient = None) -> None:
        super().__init__(streams, None, V, B)

    def declared(self, unit: list[tuple[int, ...]]) -> tuple[LearnedCoefficient, ...]:
        return super().declared(unit)[1:]

    def matrices(self, k: dict[str, Coefficient]) -> tuple[Row, Sequence[Row], Row]:
        return k["V"][0], k["V"], k["B"]

    def at(self, name: str, y: State, k: dict[str, Coefficient]) -> State:
        return super().at("V", y, k)[0] if name == "U" else super().at(name, y, k)


@register_scheme("dynamic_hyper", aliases=("dynamic_hyper_connections",))
class DynamicHyper(Hyper):
    """Dynamic hyper-connections: in a network U, V and B depend on the streams, `M + s tanh(norm(y) W)`.

    Every position has matrices of its own: stream j contributes `s tanh(norm(y_j) W)` to U_j, B_j and column j of V.
    At the start W = 0 and s = 0.01, as published, where U and V share one s, and the norm has weights of its own.
    `solve` and analysis have the static part M.
    """

    def declared(self, unit: list[tuple[int, ...]]) -> tuple[LearnedCoefficient, ...]:
        return tuple(replace(one, varies=True, in_time=None) for one in super().declared(unit))

    def at(self, name: str, y: State, k: dict[str, Coefficient]) -> State:
        static, (weight, size) = super().at(name, y, k), varying_names(name)
        return varied(static, k[weight], k[size], y) if weight in k else static


register_family("hyper", lambda streams: Hyper(streams))
register_family("mhc", lambda streams: MHC(streams))
register_family("altup", lambda streams: AltUp(streams))
register_family("dynamic_hyper", lambda streams: DynamicHyper(streams))


def varied(static: Coefficient, weight: Coefficient, size: Coefficient, y: State) -> State:
    """`M + s tanh(norm(y) W)` for each position: M's dimensions, then those of a stream with one feature."""
    if is_traced(y):
        return y.tracer.create_proxy("call_function", varied, (static, weight, size, y), {})
    import torch

    features = feature_dimension(y.ndim - 1)
    with without_autocast(y):
        x = y.movedim(features, -1)
        x = torch.nn.functional.layer_norm(x, x.shape[-1:])
        moved = size.to(x.dtype) * torch.tanh(x @ weight.to(x.dtype))
        moved = moved if static.ndim == 1 else moved.movedim(-1, 0)
        static = static.to(x.dtype).view(*static.shape, *(1,) * (y.ndim - 2))
        return (static + moved).unsqueeze(features)


def feature_dimension(dimensions: int) -> int:
    """The dimension of the features of a state: the last; of images [batch, channels, height, width], the channels."""
    return -3 if dimensions == 4 else -1


def in_turn(rows: Sequence[Row], n: int) -> Row:
    return rows[n % len(rows)]


def check_stochastic(name: str, weights: NDArray[np.object_]) -> None:
    """Refuse weights that are negative or whose rows (of V, its columns too) do not sum to 1."""
    for axis in range(weights.ndim):
        for total in np.atleast_1d(weights.sum(axis=axis)):
            if differs(total, 1):
                what = "rows and columns" if weights.ndim > 1 else "weights"
                raise UserError(f"{name} for 'mhc': {what} must sum to 1, and one sums to {total}; take 'hyper'")
    if any(not hasattr(weight, "free_symbols") and weight < 0 for weight in weights.ravel().tolist()):
        raise UserError(f"{name} for 'mhc': expected no negative weights; take 'hyper'")


def weighted_mean(weights: Row, y: State) -> State:
    """`sum_i w_i y_i` of weights that sum to 1, as `y_0 + sum_i w_i (y_i - y_0)`: exact where all streams are equal."""
    others = [(weight, combine((1, part), (-1, y[0]))) for weight, part in zip(weights[1:], y[1:], strict=True)]
    return combine((1, y[0]), *others)
