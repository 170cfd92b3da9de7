"""A march that keeps its last states only: the others are found by taking the steps back.

    (X_n, Y_n) from (X_{n+1}, Y_{n+1})            RevNet (Gomez et al. 2017; paper, section 2.1)
    u_{n-1} = u_n + (u_{n+1} - u_n - dt f(u_n)) / k       LM; with k = -gamma, momentum networks (Sander et al. 2021)
    y_n = V^-1 (y_{n+1} - B dt f(U V^-1 y_{n+1}))         several streams where U V^-1 B = 0: `momentum`

and the same with any increment of `u_n` in place of `dt f(u_n)`: LM over Heun, over PolyNet's, over RevNet's. The step
and its inverse are the scheme's. An inverse that divides by k multiplies rounding by 1/|k|: it loses
log2(1/|k|) bits. Such a march is summed in double precision, whose 29 spare bits pay for the loss; where 20 of them are
spent, the states are kept once, and the count begins anew. So what is found again is what was there, but for a state
that is exactly 0: found as 1e-17, it would stand on the other side of a ReLU's kink. Where a state has zeros, their
places are kept. (RevNet's inverse divides by nothing: `(0 + f) - f` is 0.)
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from stepnet.nets.replay import RepeatedEvaluation, storage
from stepnet.schemes import Coefficient, Past, Point, Scheme, State, advance, from_parts, parts_of

Place = tuple[int, int]  # a storage, and where in it a tensor begins: the two parts of a pair may share one
Name = tuple[int, int]  # of a tensor that is part of a state: the number of the state, and of the part in it
EXACT = torch.float64  # in which sums can be undone that divide by k
SPARE_BITS = 20.0  # of double over single precision, less what keeps a state on the same side of its rounding


class ReversibleMarch:
    """The states of one march. `advance` takes a step as `schemes.advance` does, and keeps no state of it."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype  # what the blocks are given
        self.steps: list[_Step] = []
        self.kept: dict[int, State] = {}
        self.found: dict[int, State] = {}  # in the backward pass: the newest that were found again
        self.lost = 0.0
        self.newest: dict[int, State] = {}

    def advance(
        self, scheme: Scheme, past: Past, dt: Coefficient = 1, k: Coefficient = None, gate: Coefficient = 1
    ) -> State:
        """One step; a start, and a transition, which reads another state than `u_n`, keep what they need."""
        sides = parts_of(past[0].rhs)
        if not scheme.invertible or len(past) < scheme.steps or not all(hasattr(f, "module") for f in sides):
            return advance(scheme, past, dt, k, gate)
        for point in past:
            point.u = self._exact(scheme, point.u)
        window = tuple(point.u for point in past)
        n = len(self.steps) + scheme.steps - 1  # the number of u_n: the march's first states are 0 … steps - 1
        bits = scheme.lost_bits(_detached(k))
        if self.lost + bits > SPARE_BITS:
            self._keep(n, window)
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
        """`u_n`, kept or found by taking back the steps after it."""
        depth, scheme = len(self.steps), self.steps[-1].scheme
        nearest = next((m for m in range(n, depth + scheme.steps) if self.knows(m)), None)
        if nearest is None:  # no gradient has reached the last states yet, or older ones have taken their place
            raise RuntimeError(
                "memory='reversible': the gradient of an inner state alone was asked for, and the march is taken back "
                "from its last: add that to the loss, or take memory='recompute'"
            )
        for m in range(nearest - 1, n - 1, -1):
            after = tuple(self._known(m + scheme.steps - j) for j in range(scheme.steps))
            found = self.steps[m].inverse(after)  # the steps count from 0 as the states that they forget do
            self.found = {m: found, **{j: u for j, u in self.found.items() if j == m + 1}}  # newer ones have been used
        return self._known(n)

    def _known(self, n: int) -> State:
        return self.kept[n] if n in self.kept else self.found[n]

    def knows(self, n: int) -> bool:
        """Whether no step has to be taken back for `u_n`."""
        return n in self.kept or n in self.found

    def rounded(self, u: State) -> State:
        """Return the state in the network\'s own precision."""
        return from_parts([part.to(self.dtype) for part in parts_of(u)])

    def close(self, last: State) -> State:
        """The last state; autograd keeps it and those that go with it, from which all others can be found."""
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

    def _keep(self, n: int, window: tuple[State, ...]) -> None:
        self.kept.update({n - j: _detached(u) for j, u in enumerate(window)})

    def _exact(self, scheme: Scheme, u: State) -> State:
        """The state in the precision in which its sums can be undone."""
        least = EXACT if _divides(scheme) else torch.float32
        return from_parts([part.to(torch.promote_types(part.dtype, least)) for part in parts_of(u)])

    def _fetch(self, kept: Any) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        n, part = kept
        state: Tensor = parts_of(self.state(n))[part]
        return state


class _Last(torch.autograd.Function):
    """The newest states, as they are: the first of them go on, all are kept, and come back before their gradient."""

    @staticmethod
    def forward(ctx: Any, march: ReversibleMarch, count: int, *parts: Tensor) -> tuple[Tensor, ...]:
        ctx.march, ctx.count = march, count
        ctx.save_for_backward(*parts)
        return tuple(part.view_as(part) for part in parts[:count])

    @staticmethod
    def backward(ctx: Any, *adjoint: Tensor) -> tuple[Any, ...]:
        march, count, parts = ctx.march, ctx.count, [part.detach() for part in ctx.saved_tensors]
        march.found = {n: from_parts(parts[j * count : (j + 1) * count]) for j, n in enumerate(march.newest_numbers)}
        if torch.is_grad_enabled():  # a second derivative may begin at any step, and not come by here again
            march.kept.update(march.found)
        return (None, None, *adjoint, *[None] * (len(parts) - count))


class _Step:
    """What it takes to repeat a step's evaluations, and to take it back."""

    def __init__(
        self,
        march: ReversibleMarch,
        scheme: Scheme,
        n: int,
        dt: Coefficient,
        k: Coefficient,
        gate: Coefficient,
        oldest: State,  # which the step forgets
    ) -> None:
        self.march, self.scheme, self.n, self.dt, self.k, self.gate = march, scheme, n, dt, k, gate
        self.zeros = [_zeros_of(part) if _divides(scheme) else None for part in parts_of(oldest)]
        self.evaluations: dict[tuple[int, int], RepeatedEvaluation] = {}  # the i-th of right-hand side j

    def recorded(self, point: Point) -> Any:
        """The right-hand sides, each evaluated so that it keeps nothing."""
        self.sides = len(parts_of(point.rhs))
        return from_parts([partial(self._first, j, rhs) for j, rhs in enumerate(parts_of(point.rhs))])

    def inverse(self, after: tuple[State, ...]) -> State:
        """The oldest of the states before the step."""
        with torch.no_grad():
            k = _in_precision(self.k, after[0])
            oldest = self.scheme.inverse(after, self._repeated(), self.dt, k, self.gate)
            return from_parts(
                [u if at is None else u.masked_fill(at, 0) for u, at in zip(parts_of(oldest), self.zeros, strict=True)]
            )

    def _first(self, j: int, rhs: Any, u: Tensor, c: Coefficient, i: int) -> Tensor:
        """The i-th evaluation of the j-th right-hand side."""
        wanted = u.requires_grad

        def f(v: Tensor) -> Tensor:
            v = v if v.requires_grad == wanted else v.detach().requires_grad_()  # a state that was found again
            value: Tensor = rhs(v.to(self.march.dtype), c, i)
            return value.to(torch.promote_types(value.dtype, v.dtype))

        evaluation = RepeatedEvaluation(f, rhs.module, partial(self._argument, j), whole=True)
        self.evaluations[j, i] = evaluation
        value: Tensor = evaluation(u)
        return value

    def _argument(self, j: int) -> tuple[Tensor, ...]:
        """RevNet's `f` stands at `Y_n`, its `g` at `X_{n+1}`. Others may stand between states: all are repeated."""
        if not _divides(self.scheme):
            n, part = ((self.n, 1), (self.n + 1, 0))[j]
            return (parts_of(self.march.state(n))[part],)
        oldest = self.n + 1 - self.scheme.steps
        if not self.march.knows(oldest):
            self.march.state(oldest)  # takes this step back, which repeats its evaluations
            return ()
        u = self.march.state(self.n)
        with torch.no_grad():
            past = (Point(u, self._repeated()), Point(u))[: self.scheme.steps]
            self.scheme.increment(past, self.dt, _in_precision(self.k, u))
        return ()

    def _repeated(self) -> Any:
        """The right-hand sides, whose evaluations are repeated if their values are not known already."""

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
    """A coefficient, or several by name, in the precision of a state."""
    if isinstance(k, dict):
        return {name: _in_precision(value, u) for name, value in k.items()}
    return k.to(parts_of(u)[0].dtype) if isinstance(k, Tensor) else k


def _zeros_of(u: Tensor) -> Tensor | None:
    """Where a state is exactly 0: in new channels that no block has filled yet, behind dropout, behind a ReLU."""
    zeros = u.detach() == 0
    return zeros if bool(zeros.any()) else None


def _names(n: int, window: tuple[State, ...]) -> dict[Place, Name]:
    """The names of a step's states. A state that no step reads any more may be freed, and its place be another's."""
    return {_place(part): (n - m, j) for m, u in enumerate(window) for j, part in enumerate(parts_of(u))}


def _name(names: dict[Place, Name], tensor: Tensor) -> Any:
    """What autograd gets to keep: the name of a state, or what is not one."""
    return names.get(_place(tensor), tensor if tensor.is_leaf else tensor.detach())


def _place(tensor: Tensor) -> Place:
    return storage(tensor), int(tensor.storage_offset())


def _detached(u: State) -> State:
    if isinstance(u, tuple):
        return tuple(part.detach() for part in u)
    if isinstance(u, dict):
        return {name: _detached(part) for name, part in u.items()}
    return u.detach() if isinstance(u, Tensor) else u
