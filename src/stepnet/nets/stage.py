"""A stage: one resolution, one scheme, N blocks. The only place where a network meets a scheme."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stepnet.errors import UserError
from stepnet.nets.cost import KineticCost
from stepnet.nets.trajectories import Visit, watch_calls
from stepnet.schemes import Euler, Point, Scheme, advance, march

Gates = Sequence[Any]
EULER = Euler()


class Transition(nn.Module):
    """The first block of a stage that changes the shape: `u_0 = P x`, `u_1 = P x + f(x)`.

    Down-sampling is not part of the differential equation, so this is always an Euler step with `f` at the old
    resolution. The projected input `P x` is the past of the next step. With `project_past` (LM-ResNeXt) the state
    before `x` is projected too, by a convolution of its own, and the transition is a full step of the scheme.
    """

    def __init__(self, block: nn.Module, shortcut: nn.Module, project_past: nn.Module | None = None) -> None:
        super().__init__()
        self.block = block
        self.shortcut = shortcut
        self.project_past = project_past

    def point(self, x: Tensor) -> Point:
        """The projected input with `f(x)` as its right-hand side."""
        return Point(self.shortcut(x), lambda u, c, i: self.block(x))


class Stage(nn.Module):
    """`u_0 … u_N` by `march`: an optional transition, then the blocks.

    `k` is one parameter that holds the coefficients of all steps that own one: a starting step owns none.
    """

    def __init__(
        self,
        scheme: Scheme,
        blocks: Sequence[nn.Module],
        transition: Transition | None = None,
        dt: float = 1,
        after: Callable[[Tensor], Tensor] | None = None,
        initial_k: float | None = None,
        k_channels: int | None = None,
    ) -> None:
        super().__init__()
        check_makes_network(scheme)
        check_step_size(dt)
        check_coefficients(scheme, initial_k, k_channels)
        self.scheme, self.dt, self.after = scheme, dt, after
        self.transition = transition
        self.blocks = nn.ModuleList(blocks)
        self.k: nn.Parameter | None = None
        if scheme.trainable and self.owners:
            shape = (len(self.owners),) if k_channels is None else (len(self.owners), k_channels, 1, 1)
            low, high = scheme.initial_k if initial_k is None else (initial_k, initial_k)
            self.k = nn.Parameter(torch.empty(shape).uniform_(low, high) if low < high else torch.full(shape, low))

    @property
    def steps(self) -> list[nn.Module]:
        """The block of each step, the transition's first."""
        return [*([] if self.transition is None else [self.transition.block]), *self.blocks]

    @property
    def depth(self) -> int:
        """How many steps it takes, the transition counted."""
        return len(self.steps)

    @property
    def owners(self) -> list[int]:
        """The steps that own a coefficient: those of the scheme itself, with a full past."""
        given = self.transition is not None and self.transition.project_past is not None
        by_euler = self.transition is not None and not given
        return list(range(self.depth))[max(by_euler, self.scheme.steps - 1 - given) :]

    def named_coefficients(self) -> Iterator[tuple[str, Tensor]]:
        """`k_n` with the name of the block whose step owns it."""
        names = [
            *(["transition"] if self.transition is not None else []),
            *(f"blocks.{n}" for n in range(len(self.blocks))),
        ]
        for owner, k in zip(self.owners, () if self.k is None else self.k.unbind(), strict=False):
            yield names[owner], k

    def states(
        self,
        x: Tensor,
        past: Tensor | None = None,
        gates: Gates | None = None,
        given: Sequence[Any] | None = None,
        cost: KineticCost | None = None,
    ) -> Iterator[Tensor]:
        """Yield `u_0, u_1, …, u_N`.

        `past` is the state before `x`, of the stage before. `gates` are one for each step; so are `given`, the
        coefficients of a scheme that does not learn them (FractalNet's join weights). A running `cost` watches
        the right-hand sides.
        """
        ks = given if given is not None else None if self.k is None else self.k.unbind()
        fs = [right_hand_side(block) for block in self.blocks]
        history: tuple[Point, ...] = ()
        u = x
        if self.transition is not None:
            start = self.transition.point(x)
            u, fs = start.u, [start.rhs, *fs]
        if cost is not None:
            fs = [cost.watch(f, self.dt) for f in fs]
        yield u
        if self.transition is not None and self.transition.project_past is not None:
            if past is None:
                raise UserError("this stage also projects the state before x: call it with (x, past)")
            history = (Point(self.transition.project_past(past)),)
        elif self.transition is not None:
            history = (Point(u, fs.pop(0)),)
            u = advance(EULER, history, self.dt, None, 1 if gates is None else gates[0])
            u = u if self.after is None else self.after(u)
            gates = None if gates is None else gates[1:]
            yield u
        yield from march(self.scheme, fs, u, self.dt, ks, gates, self.after, history)

    def forward(
        self,
        x: Tensor,
        past: Tensor | None = None,
        gates: Gates | None = None,
        given: Sequence[Any] | None = None,
        cost: KineticCost | None = None,
        visit: Visit | None = None,
    ) -> Tensor:
        """The last state; `visit` is called with every state."""
        for u in self.states(x, past, gates, given, cost):
            x = u
            if visit is not None:
                visit(u)
        return x

    def watch_states(self, stages: list[list[Tensor]]) -> RemovableHandle:
        """See `stepnet.nets.trajectories`."""
        return watch_calls(self, stages)

    def extra_repr(self) -> str:
        return f"scheme={self.scheme.name}, dt={self.dt}, equation: {self.scheme.equation}"


def right_hand_side(block: nn.Module) -> Callable[[Tensor, Any, int], Tensor]:
    """A block as `rhs(u, c, i)`: a network has no clock, so `c` is not used."""
    return lambda u, c, i: block(u, i)


def evaluations(scheme: Scheme, blocks: int, history: int) -> list[int]:
    """How often each block is evaluated in its step, found by marching the scheme itself over numbers."""
    counts = [1] * blocks

    def counter(n: int) -> Callable[[Any, Any, int], Any]:
        def rhs(u: Any, c: Any, i: int) -> Any:
            counts[n] = max(counts[n], i + 1)
            return u

        return rhs

    past = tuple(Point(np.zeros(()), counter(0)) for _ in range(history))
    for _ in march(scheme, [counter(n) for n in range(blocks)], np.zeros(()), 1, past=past):
        pass
    return counts


def check_step_size(dt: float) -> None:
    """Refuse a step that leads nowhere."""
    if not (_is_finite(dt) and dt > 0):
        raise UserError(f"dt = {dt!r}: expected a positive finite number")


def check_coefficients(scheme: Scheme, k: float | None, channels: int | None) -> None:
    """Refuse coefficients that would be ignored, or that are none."""
    if k is not None and not _is_finite(k):
        raise UserError(f"k = {k!r}: expected a finite number, from which all coefficients start")
    if not scheme.trainable and (k is not None or channels is not None):
        option = "k_per_channel" if k is None else f"k = {k!r}"
        raise UserError(f"{option}: scheme {scheme.name!r} learns no coefficients; leave it out, or take scheme 'lm'")


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def check_makes_network(scheme: Scheme) -> None:
    """Refuse a scheme that cannot march the blocks of a residual stage, and say what can be had instead."""
    if not scheme.makes_network:
        raise UserError(f"scheme {scheme.name!r} makes no network: an implicit step would have to invert the block")
    if scheme.equation.partitioned:
        raise UserError(f"scheme {scheme.name!r} advances a pair (X, Y): use a revnet model, e.g. 'revnet38'")
