"""A march that saves its last states only: the others are recomputed by inverting the steps.

    (X_n, Y_n) from (X_{n+1}, Y_{n+1})            RevNet (Gomez et al. 2017; paper, section 2.1)
    u_{n-1} = u_n + (u_{n+1} - u_n - dt f(u_n)) / k       LM; with k = -gamma, momentum networks (Sander et al. 2021)
    y_n = V^-1 (y_{n+1} - B dt f(U V^-1 y_{n+1}))         several streams where U V^-1 B = 0: `momentum`

and the same with any increment of `u_n` in place of `dt f(u_n)`: LM over Heun, over PolyNet's, over RevNet's. The step
and its inverse are the scheme's. An inverse that divides by k multiplies rounding errors by 1/|k|: it loses
log2(1/|k|) bits. Such a march is summed in double precision, which has 29 bits more; after 20 of them are lost, the
states are saved once, and the count restarts. A recomputed state therefore equals the original one, except for an entry
that is exactly 0: recomputed as 1e-17, it would be on the other side of a ReLU's kink. If a state has zeros, their
positions are saved. (RevNet's inverse does not divide: `(0 + f) - f` is 0.)
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from stepnet.nets.replay import RepeatedEvaluation, storage
from stepnet.schemes import Coefficient, Past, Point, RightHandSides, Scheme, State, advance, from_parts, parts_of

Place = tuple[int, int]  # a storage and an offset: the two parts of a pair may share a storage
Name = tuple[int, int]  # of a tensor in a state: the number of the state, and of the part in it
EXACT = torch.float64  # the precision of sums whose inverse divides by k
SPARE_BITS = 20.0  # bits that may be lost: 29, less a margin so that states round alike


class ReversibleMarch:
    """The states of one march. `advance` takes a step as `schemes.advance` does, without saving its states."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype  # of the inputs of blocks
        self.steps: list[_Step] = []
        self.saved: dict[int, State] = {}
        self.recomputed: dict[int, State] = {}  # in the backward pass: the states recomputed last
        self.lost = 0.0
        self.newest: dict[int, State] = {}

    def advance(
        self, scheme: Scheme, past: Past, dt: Coefficient = 1, k: Coefficient = None, gate: Coefficient = 1
    ) -> State:
        """Take a step. A start, and a transition, which reads another state than `u_n`, are stored as usual."""
        sides = parts_of(past[0].rhs)
        if not scheme.invertible or len(past) < scheme.steps or not all(hasattr(f, "module") for f in sides):
            return advance(scheme, past, dt, k, gate)
        for point in past:
            point.u = self._exact(scheme, point.u)
        window = tuple(point.u for point in past)
        n = len(self.steps) + scheme.steps - 1  # of u_n: the first states of the march have the numbers 0 … steps - 1
        bits = scheme.lost_bits(_detached(k))
        if self.lost + bits > SPARE_BITS:
            self._save(n, window)
            self.lost = 0.0
        self.lost += bits
        step = _Step(self, scheme, n, dt, _detached(k), gate, window[-1])
        self.steps.append(step)
        exact_k = _in_precision(k, window[0])
        points = tuple(Point(u) for u in window[1:])
        with saved_tensors_hooks(partial(_name, _names(n, window)), self._fetch):
            new = advance(scheme, (Point(window[0], step.recorded(past[0])), *points), dt, exact_k, gate)
        self._remember(n + 1, new, window)
        return new

    def state(self, n: int) -> State:
        """Return `u_n`, saved or recomputed by inverting the steps after it."""
        depth, scheme = len(self.steps), self.steps[-1].scheme
        nearest = next((m for m in range(n, depth + scheme.steps) if self.knows(m)), None)
        if nearest is None:  # no gradient has reached the last states yet, or they are no longer there
            raise RuntimeError(
                "memory='reversible': the loss depends on an inner state only, but states are recomputed from the "
                "last: let the loss depend on that, too, or take memory='recompute'"
            )
        for m in range(nearest - 1, n - 1, -1):
            after = tuple(self._known(m + scheme.steps - j) for j in range(scheme.steps))
            oldest = self.steps[m].inverse(after)  # step m drops state m
            self.recomputed = {m: oldest, **{j: u for j, u in self.recomputed.items() if j == m + 1}}
        return self._known(n)

    def _known(self, n: int) -> State:
        return self.saved[n] if n in self.saved else self.recomputed[n]

    def knows(self, n: int) -> bool:
        """Whether `u_n` is known without inverting a step."""
        return n in self.saved or n in self.recomputed

    def rounded(self, u: State) -> State:
        """Return the state in the precision of the network."""
        return from_parts([part.to(self.dtype) for part in parts_of(u)])

    def close(self, last: State) -> State:
        """Return the last state; autograd saves it with those from which all others can be recomputed."""
        if not self.steps:
            return last
        others = [part for n, u in self.newest.items() if n < max(self.newest) for part in parts_of(u)]
        self.newest_numbers = list(self.newest)
        self.newest = {}
        parts = _Last.apply(self, len(parts_of(last)), *parts_of(last), *others)  # type: ignore[no-untyped-call]
        return from_parts(parts)

    def _remember(self, n: int, new: State, window: tuple[State, ...]) -> None:
        recent = {n - j: u for j, u in enumerate((new, *window))}
        self.newest = {m: _detached(u) for m, u in recent.items() if m > n - len(window)}  # newest first

    def _save(self, n: int, window: tuple[State, ...]) -> None:
        self.saved.update({n - j: _detached(u) for j, u in enumerate(window)})

    def _exact(self, scheme: Scheme, u: State) -> State:
        """Return the state in the precision in which steps can be inverted."""
        least = EXACT if _divides(scheme) else torch.float32
        return from_parts([part.to(torch.promote_types(part.dtype, least)) for part in parts_of(u)])

    def _fetch(self, saved: Tensor | Name) -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        n, part = saved
        state: Tensor = parts_of(self.state(n))[part]
        return state


class _Last(torch.autograd.Function):
    """Return the first `count` parts; save all of them, and restore them in the march when the backward pass begins."""

    @staticmethod
    def forward(ctx: Any, march: ReversibleMarch, count: int, *parts: Tensor) -> tuple[Tensor, ...]:
        ctx.march, ctx.count = march, count
        ctx.save_for_backward(*parts)
        return tuple(part.view_as(part) for part in parts[:count])

    @staticmethod
    def backward(ctx: Any, *adjoint: Tensor) -> tuple[Any, ...]:
        march, count, parts = ctx.march, ctx.count, [part.detach() for part in ctx.saved_tensors]
        states = (from_parts(parts[first : first + count]) for first in range(0, len(parts), count))
        march.recomputed = dict(zip(march.newest_numbers, states, strict=True))
        if torch.is_grad_enabled():  # a second derivative may begin at any step, and not pass here again
            march.saved.update(march.recomputed)
        return (None, None, *adjoint, *[None] * (len(parts) - count))


class _Step:
    """What is needed to repeat the evaluations of a step, and to invert it."""

    def __init__(
        self,
        march: ReversibleMarch,
        scheme: Scheme,
        n: int,
        dt: Coefficient,
        k: Coefficient,
        gate: Coefficient,
        oldest: State,  # which later steps do not read
    ) -> None:
        self.march, self.scheme, self.n, self.dt, self.k, self.gate = march, scheme, n, dt, k, gate
        self.zeros = [_zeros_of(part) if _divides(scheme) else None for part in parts_of(oldest)]
        self.evaluations: dict[tuple[int, int], RepeatedEvaluation] = {}  # by j and i: the i-th of right-hand side j

    def recorded(self, point: Point) -> RightHandSides:
        """Return the right-hand sides, whose evaluations save no tensors."""
        self.sides = len(parts_of(point.rhs))
        return from_parts([partial(self._first, j, rhs) for j, rhs in enumerate(parts_of(point.rhs))])

    def inverse(self, after: tuple[State, ...]) -> State:
        """Return the oldest of the states before the step."""
        with torch.no_grad():
            k = _in_precision(self.k, after[0])
            oldest = self.scheme.inverse(after, self._repeated(), self.dt, k, self.gate)
            return from_parts(
                [u if at is None else u.masked_fill(at, 0) for u, at in zip(parts_of(oldest), self.zeros, strict=True)]
            )

    def _first(self, j: int, rhs: Any, u: Tensor, c: Coefficient, i: int) -> Tensor:
        """The i-th evaluation of the j-th right-hand side."""
        requires_grad = u.requires_grad

        def f(v: Tensor) -> Tensor:
            v = v if v.requires_grad == requires_grad else v.detach().requires_grad_()  # a recomputed state
            value: Tensor = rhs(v.to(self.march.dtype), c, i)
            return value.to(torch.promote_types(value.dtype, v.dtype))

        evaluation = RepeatedEvaluation(f, rhs.module, partial(self._argument, j), whole=True)
        self.evaluations[j, i] = evaluation
        value: Tensor = evaluation(u)
        return value

    def _argument(self, j: int) -> tuple[Tensor, ...]:
        """Return the argument of RevNet's f or g, `Y_n` or `X_{n+1}`; for others repeat the step's evaluations."""
        if not _divides(self.scheme):
            n, part = ((self.n, 1), (self.n + 1, 0))[j]
            return (parts_of(self.march.state(n))[part],)
        oldest = self.n + 1 - self.scheme.steps
        if not self.march.knows(oldest):
            self.march.state(oldest)  # inverts this step, which repeats its evaluations
            return ()
        u = self.march.state(self.n)
        with torch.no_grad():
            past = (Point(u, self._repeated()), Point(u))[: self.scheme.steps]
            self.scheme.increment(past, self.dt, _in_precision(self.k, u))
        return ()

    def _repeated(self) -> RightHandSides:
        """Return the right-hand sides, whose evaluations are repeated if their values are not known."""

        def again(j: int, v: Tensor, c: Coefficient, i: int) -> Tensor:
            evaluation = self.evaluations[j, i]
            value: Tensor = evaluation.again(v) if evaluation.value is None else evaluation.value
            evaluation.value = None
            return value

        return from_parts([partial(again, j) for j in range(self.sides)])


def _divides(scheme: Scheme) -> bool:
    """Whether an inverse step divides by a coefficient; RevNet's does not."""
    return scheme.steps > 1 or bool(scheme.streams)


def _in_precision(k: Coefficient, u: State) -> Coefficient:
    """Return a coefficient, or a dict of them, in the precision of a state."""
    if isinstance(k, dict):
        return {name: _in_precision(value, u) for name, value in k.items()}
    return k.to(parts_of(u)[0].dtype) if isinstance(k, Tensor) else k


def _zeros_of(u: Tensor) -> Tensor | None:
    """Return where a state is exactly 0 (channels that no block has filled, after dropout or a ReLU), or None."""
    zeros = u.detach() == 0
    return zeros if bool(zeros.any()) else None


def _names(n: int, window: tuple[State, ...]) -> dict[Place, Name]:
    """Return the names of a step's states by place. After a state is freed, its place may be reused."""
    return {_place(part): (n - m, j) for m, u in enumerate(window) for j, part in enumerate(parts_of(u))}


def _name(names: dict[Place, Name], tensor: Tensor) -> Tensor | Name:
    """Return what autograd saves: the name of a state, or the tensor if it is not one."""
    return names.get(_place(tensor), tensor if tensor.is_leaf else tensor.detach())


def _place(tensor: Tensor) -> Place:
    return storage(tensor), int(tensor.storage_offset())


def _detached(u: State) -> State:
    if isinstance(u, tuple):
        return tuple(part.detach() for part in u)
    if isinstance(u, dict):
        return {name: _detached(part) for name, part in u.items()}
    return u.detach() if isinstance(u, Tensor) else u
