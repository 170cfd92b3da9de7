"""Initial values and bounds of trainable coefficients.

Training may move an unbounded `k_n` to where the scheme is not zero-stable. Under a bound the parameter is `free`: the
coefficient computed from it satisfies the bound after any optimiser step.

    interval             k = middle + radius tanh(free); the middle is exact, so k = 0 in (-1, 1) is Euler to the bit
    convex               w = softmax(free)
    doubly stochastic    V = Sinkhorn(exp(free)): rows and columns normalised in turn
    zero-stable          a from reflection coefficients tanh(free): see `ZeroStable`
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.schemes import Coefficient, LearnedCoefficient, Scheme

BoundOption: TypeAlias = Literal["stable"] | tuple[float, float] | None
FREE = "_free"  # ends the name of a parameter from which a bounded coefficient is made
LEAST = math.exp(-6)  # least initial weight under a softmax, whose gradient vanishes near 0
SINKHORN = 20  # iterations
INSIDE = 1 - 2.0**-20  # of the radius: tanh rounds to 1 in single precision


@dataclass(frozen=True)
class Bound:
    """An open interval for `k`."""

    low: float
    high: float

    @classmethod
    def of(cls, option: BoundOption, scheme: Scheme) -> Bound | None:
        """Return the bound of an option: "stable" for the scheme's zero-stable interval, two numbers, or None."""
        if option is None:
            return None
        if not scheme.trainable:
            raise UserError(f"k_bound = {option!r}: scheme {scheme.name!r} learns no coefficients; leave it out")
        if option == "stable":
            if scheme.stable_k is None:
                raise UserError(f"k_bound = 'stable': scheme {scheme.name!r} states no stable_k; give two numbers")
            return cls(*scheme.stable_k)
        low, high = map(float, option)
        if not low < high:
            raise UserError(f"k_bound = {option!r}: expected 'stable' or two finite numbers, the lower one first")
        return cls(low, high)

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def radius(self) -> float:
        return INSIDE * (self.high - self.low) / 2

    def k(self, free: Tensor) -> Tensor:
        """Return `k = middle + radius tanh(free)`."""
        k = self.radius * torch.tanh(free)
        return k if self.middle == 0 else self.middle + k

    def free(self, k: Tensor) -> Tensor:
        """Return the free parameter of a k inside the interval."""
        share = (k.double() - self.middle) / self.radius
        return torch.atanh(share.clamp(-1 + 1e-7, 1 - 1e-7)).to(k.dtype)

    def __str__(self) -> str:
        return f"{self.low:g} < k < {self.high:g}"


@dataclass(frozen=True)
class Convex:
    """Weights of a convex combination."""

    def __str__(self) -> str:
        return "convex"

    def k(self, free: Tensor) -> Tensor:
        """Return `softmax(free)`."""
        return free.softmax(-1)

    def free(self, k: Tensor) -> Tensor:
        """Return the free parameters of weights, which are raised to at least `LEAST`."""
        return k.clamp_min(LEAST).log()


@dataclass(frozen=True)
class DoublyStochastic(Convex):
    """Matrices without negative entries whose rows and columns sum to 1 (Sinkhorn, Knopp 1967)."""

    def __str__(self) -> str:
        return "doubly stochastic"

    def k(self, free: Tensor) -> Tensor:
        """Return the matrix: rows sum to 1 up to rounding, columns up to the error of the iteration."""
        logarithms = free
        for _ in range(SINKHORN):
            logarithms = logarithms - logarithms.logsumexp(-2, keepdim=True)
            logarithms = logarithms - logarithms.logsumexp(-1, keepdim=True)
        return logarithms.exp()


@dataclass(frozen=True)
class ZeroStable:
    """The weights a of a multistep method's past, all roots but 1 inside the unit circle (Schur 1917, Cohn 1922).

    `rho(z) = (z - 1) p(z)` with `p = z^m + p_1 z^(m-1) + … + p_m`, so `a_j = p_j - p_{j+1}`. The roots of p are inside
    exactly if its reflection coefficients `r_j` are: `p <- (p, 0) + r_j (reversed p, 1)`, from `p = 1`.
    """

    count: int  # m

    def __str__(self) -> str:
        return "zero-stable"

    def k(self, free: Tensor) -> Tensor:
        """Return the weights a of free parameters."""
        p = torch.ones_like(free[..., :1])
        for n in range(self.count):
            r = INSIDE * free[..., n : n + 1].tanh()
            zero = torch.zeros_like(r)
            p = torch.cat([p, zero], -1) + r * torch.cat([zero, p.flip(-1)], -1)
        return p[..., 1:] - torch.cat([p[..., 2:], torch.zeros_like(p[..., :1])], -1)

    def free(self, k: Tensor) -> Tensor:
        """Return the free parameters of zero-stable weights; raise for any other."""
        p = k.double().flip(-1).cumsum(-1).flip(-1)
        reflections = []
        for _ in range(self.count):
            r, rest = p[..., -1:], p[..., :-1]
            reflections.append(r)
            p = (rest - r * rest.flip(-1)) / (1 - r * r)
        r = torch.cat(reflections[::-1], -1)
        if not r.is_meta and not bool((r.abs() < INSIDE).all()):
            raise UserError(f"a = {k.tolist()}: not zero-stable; give others, or leave out stable=True")
        return torch.atanh(r / INSIDE).to(k.dtype)


AnyBound: TypeAlias = Bound | Convex | ZeroStable


class CoefficientLayout:
    """How the named coefficients of a scheme are stored, for the steps that own them.

    Each name is one tensor, stacked over the steps, or concatenated if its shape differs from step to step. Under a
    bound it holds free parameters, and its name ends in `_free`.
    """

    def __init__(self, scheme: Scheme, owners: Sequence[int], width: int | None = None) -> None:
        if width is None and any(one.varies for one in scheme.learned):
            raise UserError(
                f"scheme {scheme.name!r} has coefficients that depend on the state: give the stage its width=, the "
                "number of features"
            )
        self.scheme, self.owners, self.width = scheme, tuple(owners), width
        learned = [part for one in scheme.learned for part in one.parts(width)]
        self.bounds = {one.name: bound_of(one) for one in learned}
        self.shapes = {one.name: [one.shape(n) for n in owners] for one in learned}

    def starts(self, trained: Sequence[LearnedCoefficient]) -> dict[str, Tensor]:
        """Return the initial tensors of declared coefficients."""
        tensors = {}
        for one in (part for declared in trained for part in declared.parts(self.width)):
            rows = [torch.tensor(np.array(one.at(n), dtype=float).tolist()) for n in self.owners]
            start = torch.stack(rows) if len({row.shape for row in rows}) == 1 else torch.cat(rows)
            start = start + torch.empty_like(start).uniform_(*one.spread) if any(one.spread) else start
            bound = self.bounds[one.name]
            tensors[one.name if bound is None else one.name + FREE] = start if bound is None else bound.free(start)
        return tensors

    def at_euler(self) -> dict[str, Tensor]:
        """Return the tensors for which every step is an Euler step."""
        return self.starts(self.scheme.euler_start)

    def values(self, stored: Callable[[str], Tensor], name: str) -> list[Tensor]:
        """Return the values of one name, step by step."""
        bound, shapes = self.bounds[name], self.shapes[name]
        whole = stored(name) if bound is None else bound.k(stored(name + FREE))
        parts = whole.unbind() if len(set(shapes)) == 1 else whole.split_with_sizes([shape[0] for shape in shapes])
        return [parts[n] for n in range(len(shapes))]  # indexed, since torch.fx cannot iterate over them

    def by_step(self, stored: Callable[[str], Tensor]) -> list[dict[str, Coefficient]]:
        """Return the coefficients of each step as its scheme reads them: nested tuples, or tensors for streams."""
        columns: dict[str, list[Coefficient]] = {name: [*self.values(stored, name)] for name in self.shapes}
        if not self.scheme.takes_tensors:
            columns = {name: list(map(_rows, values, self.shapes[name])) for name, values in columns.items()}
        return [{name: values[n] for name, values in columns.items()} for n in range(len(self.owners))]

    def named(self, stored: Callable[[str], Tensor]) -> Iterator[tuple[int, str, Tensor]]:
        """Yield each step that has coefficients, with their names and values (the static part of those that vary)."""
        columns = {one.name: self.values(stored, one.name) for one in self.scheme.learned}
        for place, n in enumerate(self.owners):
            yield from ((n, name, values[place]) for name, values in columns.items())


class Coefficients(nn.Module):
    """The named coefficients of a stage, as its parameters."""

    def __init__(self, scheme: Scheme, owners: Sequence[int], width: int | None = None) -> None:
        super().__init__()
        self.layout = CoefficientLayout(scheme, owners, width)
        for name, start in self.layout.starts(scheme.learned).items():
            self.register_parameter(name, nn.Parameter(start))

    def by_step(self) -> list[dict[str, Coefficient]]:
        """Return the coefficients of each step that has some, as its scheme expects them."""
        return self.layout.by_step(partial(getattr, self))

    def named(self) -> Iterator[tuple[int, str, Tensor]]:
        """Yield each step that has coefficients, with their names and values."""
        return self.layout.named(partial(getattr, self))

    def extra_repr(self) -> str:
        bounds = {name: "" if bound is None else f" ({bound})" for name, bound in self.layout.bounds.items()}
        return ", ".join(f"{name}{bound} of {len(self.layout.owners)} steps" for name, bound in bounds.items())


def _rows(value: Tensor, shape: tuple[int, ...]) -> Coefficient:
    """Convert to nested tuples of numbers."""
    if not shape:
        return value
    parts = value.unbind()
    return tuple(_rows(parts[n], shape[1:]) for n in range(shape[0]))


def bound_of(one: LearnedCoefficient) -> AnyBound | None:
    """Return the bound that a coefficient declares, or None."""
    if isinstance(one.bound, tuple):
        return Bound(*one.bound)
    if one.bound == "zero-stable":
        return ZeroStable(*one.shape())
    return None if one.bound is None else Convex() if one.bound == "convex" else DoublyStochastic()


def initial_k(
    scheme: Scheme, shape: Sequence[int], k: float | None, bound: Bound | None, dtype: torch.dtype | None = None
) -> Tensor:
    """Draw `k ~ U[low, high]` from the scheme's law, or set all to `k`; warn if that is not zero-stable."""
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
    return torch.empty(*shape).uniform_(low, high).to(dtype)  # the same draw in every precision


def outermost(ks: Iterable[float], scheme: Scheme) -> float:
    """Return the coefficient furthest outside the stable interval, or nearest to one of its ends."""
    low, high = scheme.stable_k or (-math.inf, math.inf)
    return max(ks, key=lambda k: max(low - k, k - high))
