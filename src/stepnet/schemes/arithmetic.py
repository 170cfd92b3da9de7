"""The linear combinations of which every scheme is made, for tensors, arrays, symbols and pairs alike.

This is the only place where speed and exactness part ways: tensors take fused kernels, everything else (sympy
expressions, rooted-tree series, numpy arrays, numbers) takes plain arithmetic. Schemes call `combine` and `mix`
and stay plain arithmetic themselves.
"""

from __future__ import annotations

import cmath
import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from numbers import Complex
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard, TypeVar, cast

import numpy as np

from stepnet.arguments import shown
from stepnet.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Proxy

# A state is anything that can be added, subtracted and scaled: a tensor, an array, a sympy expression, a tree series
# or a tuple of these. A protocol would need a cast wherever a caller uses the result as a concrete type (90 places), so
# the alias is Any; `march`, the entry point for callers, is generic and returns the type of its argument.
State: TypeAlias = Any
Coefficient: TypeAlias = Any  # a number, a rational, a symbol or a tensor, which share no common type


T = TypeVar("T")


class Difference(NamedTuple):
    """A right-hand side known only as `f(u) = B(u) - u`, kept unsubtracted.

    A block `B` that cannot be split into `u + f(u)` enters a scheme as it is: `combine` forms `carry + f` as
    `B(u) + (carry - u)`, which is exactly `B(u)` when the carry is `u`. That is why a converted network with
    `k = 0` gives the original's bits.
    """

    end: State
    start: State

    @property
    def value(self) -> State:
        """`B(u) - u`, for a scheme that needs more than `carry + f`."""
        return self.end - self.start

    def __radd__(self, u: object) -> State:
        """Raise for `u + f` in a recorded step: the block must declare that it returns a Difference."""
        raise UserError("a block returned a Difference: set `whole = True` in its class")


def combine(*terms: tuple[Coefficient, State]) -> State:
    """`sum_j c_j x_j`. A term whose coefficient or state is the number 0 is dropped, not computed."""
    kept = [(c, x) for c, x in terms if not (is_number(c, 0) or is_number(x, 0))]
    if not kept:
        return 0
    if len(kept) == 1 and is_number(kept[0][0], 1):
        return kept[0][1]
    if any(isinstance(x, Difference) for _, x in kept):
        return _combine_difference(kept)
    if isinstance(kept[0][1], tuple):  # a pair: component by component
        parts = zip(*(x for _, x in kept), strict=True)
        return tuple(combine(*((c, x) for (c, _), x in zip(kept, part, strict=True))) for part in parts)
    kept.sort(key=lambda term: not is_number(term[0], 1))  # stable: an unscaled term saves the first product
    c, x = kept[0]
    total = x if is_number(c, 1) else scale(c, x)
    for c, x in kept[1:]:
        total = _add_scaled(total, c, x)
    return total


def mix(u: State, v: State, k: Coefficient) -> State:
    """`(1 - k) u + k v`, formed as `u + k (v - u)` so that `k = 0` gives `u` to the bit."""
    if is_number(k, 0):
        return u
    if isinstance(u, tuple):
        return tuple(mix(a, b, k) for a, b in zip(u, v, strict=True))
    if is_traced(u):  # the kernel is chosen at run time, when dtypes are known
        return u.tracer.create_proxy("call_function", mix_tensors, (u, v, _as_float(k)), {})
    return mix_tensors(u, v, _as_float(k)) if is_tensor(u) else u + scale(k, v - u)


def mix_tensors(u: Tensor, v: Tensor, k: Tensor | float) -> Tensor:
    """`mix` for tensors, by one kernel where their dtypes agree."""
    dtype = u.dtype
    if v.dtype != dtype or getattr(k, "dtype", dtype) != dtype or u.is_nested:
        return u + cast("Tensor", scale(k, v - u))
    return u.lerp(v, k)


def transformed(matrix: Coefficient, y: State) -> State:
    """`M y` for streams stacked in one tensor, `sum_i w_i y_i` for a vector M; M may depend on the position."""
    if is_traced(y):
        return y.tracer.create_proxy("call_function", transformed, (matrix, y), {})
    import torch

    if matrix.ndim > 2:
        return (matrix * y).sum(-y.ndim)
    with without_autocast(y):  # streams keep their precision, as a sum of states does
        return torch.tensordot(matrix.to(y.dtype), y, 1)


def without_autocast(y: Tensor) -> AbstractContextManager[Any]:
    """A context in which operations keep the precision of their arguments."""
    import torch

    kind = y.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def weighted_sum(weights: Coefficient, states: tuple[State, ...]) -> State:
    """`sum_j w_j x_j` of up to hundreds of states; torch.fx records it as one call."""
    if is_traced(states[0]):
        return states[0].tracer.create_proxy("call_function", weighted_sum, (weights, states), {})
    return combine(*zip(weights.unbind() if is_tensor(weights) else weights, states, strict=False))


def stacked(u: State, count: int) -> State:
    """Stack `count` copies of a state in one tensor."""
    import torch

    return torch.stack((u,) * count)


def as_tensor(values: Coefficient, like: State) -> State:
    """Convert coefficients to a tensor with the dtype and device of `like`."""
    if is_tensor(values):
        return values
    if is_traced(like):
        return like.tracer.create_proxy("call_function", as_tensor, (values, like), {})
    return like.new_tensor(np.array(values, dtype=float))


def outer(column: Coefficient, x: State) -> State:
    """`B x`: the streams `B_j x`, stacked in one tensor."""
    if is_traced(x):
        return x.tracer.create_proxy("call_function", outer, (column, x), {})
    return (column if column.ndim > 1 else column.to(x.dtype).view(-1, *(1,) * x.ndim)) * x


def scale(c: Coefficient, x: State) -> State:
    """`c x`; a rational c becomes a float if x is an array or a tensor."""
    if isinstance(x, tuple):
        return tuple(scale(c, part) for part in x)
    if isinstance(x, np.ndarray) or is_tensor(x):
        c = _as_float(c)
    if is_tensor(c) and is_tensor(x) and not is_traced(x) and x.is_nested:
        c = c.reshape(())  # the only tensors that a nested tensor can be multiplied by
    return c * x


def parts_of(u: State) -> tuple[State, ...]:
    """Return the parts of a pair, or `(u,)` for any other state."""
    return u if isinstance(u, tuple) else (u,)


def from_parts(parts: Sequence[T]) -> T | tuple[T, ...]:
    """Inverse of `parts_of`: a tuple of several parts, or the only part itself."""
    return tuple(parts) if len(parts) > 1 else parts[0]


def is_number(value: object, number: int) -> bool:
    """Whether `value` is the plain number `number`.

    False for every tensor, since comparing one would wait for the device. False for every numpy scalar, although
    np.float64 is a float: arithmetic on 0-d arrays returns one, so it may be a state that happens to be 0.
    """
    return type(value) in (int, float, bool, Fraction) and value == number


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether `value` is a tensor, or a torch.fx proxy for one.

    torch is looked up in `sys.modules`, not imported: before it is loaded, nothing is a tensor.
    """
    torch = sys.modules.get("torch")
    return torch is not None and (isinstance(value, torch.Tensor) or is_traced(value))


def is_traced(value: object) -> TypeGuard[Proxy]:
    """Whether `value` is a torch.fx proxy, which has no shape, dtype or values."""
    fx = sys.modules.get("torch.fx")
    return fx is not None and isinstance(value, fx.Proxy)


def is_finite(value: Coefficient) -> bool:
    """Whether all entries of a coefficient are finite; a symbol counts as finite."""
    if is_tensor(value):
        try:
            return bool(value.isfinite().all())
        except RuntimeError:  # under torch.vmap a tensor has no single truth value
            return True
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biufc" and bool(np.isfinite(value).all())
    if hasattr(value, "free_symbols"):
        return value.is_finite is not False
    try:
        return isinstance(value, Complex) and cmath.isfinite(value)
    except OverflowError:  # an integer larger than any float
        return False


def exact(c: Coefficient) -> Coefficient:
    """Convert a coefficient to an exact one: a float to the simplest rational that rounds to it, a symbol to itself.

    A string is rejected: sympy would evaluate it as code.
    """
    if c is None or isinstance(c, int | Fraction):
        return c
    if isinstance(c, dict):
        return {name: exact(value.tolist() if getattr(value, "ndim", 0) else value) for name, value in c.items()}
    if isinstance(c, tuple | list):
        return tuple(map(exact, c))
    if getattr(c, "is_Rational", False):
        return Fraction(int(c.p), int(c.q))
    if hasattr(c, "free_symbols") and not c.is_Float:
        return c
    if (is_tensor(c) or isinstance(c, np.ndarray)) and math.prod(c.shape) != 1:
        raise UserError(f"a coefficient of shape {tuple(c.shape)}: analysis takes one k at a time")
    try:
        value = float("nan" if isinstance(c, str | bytes) else c)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"coefficient {shown(c)}: expected a finite number or a sympy symbol")
    simple = Fraction(value).limit_denominator(10_000)
    return simple if abs(simple - Fraction(value)) <= abs(value) * 2**-52 else Fraction(repr(value))


def _combine_difference(terms: list[tuple[Coefficient, State]]) -> State:
    unscaled = [x for c, x in terms if isinstance(x, Difference) and is_number(c, 1)]
    if len(unscaled) != 1 or sum(isinstance(x, Difference) for _, x in terms) != 1:
        return combine(*((c, x.value if isinstance(x, Difference) else x) for c, x in terms))
    block = unscaled[0]
    rest = combine(*((c, x) for c, x in terms if x is not block))
    if rest is block.start:
        return block.end
    return block.end + (rest - block.start)


def _add_scaled(total: State, c: Coefficient, x: State) -> State:
    if is_number(c, 1):
        return total + x
    if is_tensor(x) and is_tensor(total) and not is_tensor(c):
        return total.add(x, alpha=_as_float(c))
    return total + scale(c, x)


def _as_float(c: Coefficient) -> Coefficient:
    if isinstance(c, Fraction):
        return float(c)
    if is_tensor(c) or not hasattr(c, "free_symbols"):
        return c
    if c.free_symbols:
        raise UserError(f"the coefficient {c} has no value: a run needs a number for {min(map(str, c.free_symbols))}")
    return float(c)  # a sympy number
