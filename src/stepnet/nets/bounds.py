"""Where trainable coefficients start, and how they are kept in an interval: `k = middle + radius tanh(free)`.

Training may drive an unbounded `k_n` to where the scheme is not zero-stable. A bound makes `free` the parameter: any
step of any optimiser leaves `k` inside the open interval. The middle is exact, so `k = 0` under the bound (-1, 1) is
Euler to the bit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from stepnet.errors import UserError
from stepnet.schemes import Scheme

BoundOption: TypeAlias = Literal["stable"] | tuple[float, float] | None
INSIDE = 1 - 2.0**-20  # of the radius: tanh rounds to 1 in single precision


@dataclass(frozen=True)
class Bound:
    """An open interval for `k`."""

    low: float
    high: float

    @classmethod
    def of(cls, given: BoundOption, scheme: Scheme) -> Bound | None:
        """From what a network is given: "stable" for the scheme's own interval, two numbers, or nothing."""
        if given is None:
            return None
        if not scheme.trainable:
            raise UserError(f"k_bound = {given!r}: scheme {scheme.name!r} learns no coefficients; leave it out")
        if given == "stable":
            if scheme.stable_k is None:
                raise UserError(f"k_bound = 'stable': scheme {scheme.name!r} states no stable_k; give two numbers")
            return cls(*scheme.stable_k)
        low, high = map(float, given)
        if not low < high:
            raise UserError(f"k_bound = {given!r}: expected 'stable' or two finite numbers, the lower one first")
        return cls(low, high)

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def radius(self) -> float:
        return INSIDE * (self.high - self.low) / 2

    def k(self, free: Tensor) -> Tensor:
        """The coefficient of a free parameter."""
        k = self.radius * torch.tanh(free)
        return k if self.middle == 0 else self.middle + k

    def free(self, k: Tensor) -> Tensor:
        """The free parameter of a coefficient inside."""
        share = (k.double() - self.middle) / self.radius
        return torch.atanh(share.clamp(-1 + 1e-7, 1 - 1e-7)).to(k.dtype)

    def __str__(self) -> str:
        return f"{self.low:g} < k < {self.high:g}"


def initial_k(
    scheme: Scheme, shape: Sequence[int], k: float | None, bound: Bound | None, dtype: torch.dtype | None = None
) -> Tensor:
    """Draw `k ~ U[low, high]` from the scheme's own law, or set all to the given one; warn where that is not stable."""
    most = torch.finfo(dtype or torch.get_default_dtype()).max
    if k is not None and not abs(k) <= most:
        raise UserError(f"k = {k!r}: expected a finite number up to {most:.3g}, from which all coefficients start")
    low, high = scheme.initial_k if k is None else (float(k), float(k))
    if bound is not None and not (bound.low <= low < high <= bound.high or bound.low < low == high < bound.high):
        law = f"k = {low:g}" if low == high else f"the initial law U[{low:g}, {high:g}]"
        raise UserError(f"{law} does not lie in k_bound, {bound}: give a k inside it")
    if not all(map(scheme.zero_stable_at, (low, high))):
        largest = max(abs(low), abs(high))
        warnings.warn(
            f"k = {low:g} is outside {scheme.stable_range}, where {scheme.name} is zero-stable: "
            f"states grow like {f'{largest:g}^n' if largest > 1 else 'n'} with depth",
            stacklevel=2,
        )
    if low == high:
        return torch.full(tuple(shape), low, dtype=dtype)
    return torch.empty(*shape).uniform_(low, high).to(dtype)  # drawn alike in every precision


def outermost(ks: Iterable[float], scheme: Scheme) -> float:
    """The coefficient furthest outside the stable interval, or nearest to one of its ends."""
    low, high = scheme.stable_k or (-math.inf, math.inf)
    return max(ks, key=lambda k: max(low - k, k - high))
