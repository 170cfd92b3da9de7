"""A stage that stores nothing: its backward pass runs the scheme backwards (Gomez et al. 2017; paper, section 2.1).

The step `(X_n, Y_n) -> (X_{n+1}, Y_{n+1})` of a coupled scheme has an exact inverse, so the states that a gradient
needs are recomputed from the last one, block by block. Both the step (`advance`) and its inverse are the scheme's:
what stands here is only how an evaluation is repeated exactly, and how its gradient is collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call

from stepnet.errors import UserError
from stepnet.nets.bounds import BoundOption
from stepnet.nets.cost import KineticCost
from stepnet.nets.stage import CoupledTransition, Coupling, Gates, Pair, Stage, StateT
from stepnet.nets.trajectories import Visit
from stepnet.schemes import Point, Scheme, advance, march
from stepnet.schemes.arithmetic import Coefficient


class ReversibleStage(Stage):
    """A stage of couplings, `(X_0, Y_0) … (X_N, Y_N)`. In training, the backward pass recomputes instead of storing.

    In evaluation, and where no gradient is asked for, it is the plain march. Under `torch.compile` a training step
    runs the stage eagerly, so that it still stores nothing. `recompute=False` stores as any other network does;
    training in one full graph, second derivatives and `torch.func` need that, and a scheme without an inverse (LM's
    would divide by k) cannot do otherwise. A transition loses pixels, so it has no
    inverse and keeps what its gradient needs.
    """

    def __init__(
        self,
        scheme: Scheme,
        blocks: Sequence[Coupling],
        transition: CoupledTransition | None = None,
        dt: float = 1,
        recompute: bool | None = None,
        initial_k: float | None = None,
        k_channels: int | None = None,
        k_bound: BoundOption = None,
    ) -> None:
        invertible = hasattr(scheme, "inverse")
        if recompute and not invertible:
            raise UserError(f"scheme {scheme.name!r} has no exact inverse: take recompute=False, or 'coupled'")
        super().__init__(scheme, blocks, transition, dt, None, initial_k, k_channels, k_bound)
        self.recompute = invertible if recompute is None else recompute

    def forward(
        self,
        x: StateT,
        past: StateT | None = None,
        gates: Gates | None = None,
        given: Sequence[Coefficient] | None = None,
        cost: KineticCost | None = None,
        visit: Visit | None = None,
    ) -> StateT:
        """The last pair; `visit` is called with every pair, which are then stored."""
        stores = not (self.recompute and self.training and torch.is_grad_enabled() and len(self.blocks))
        if stores or visit is not None:
            return super().forward(x, past, gates, given, cost, visit)
        if self.transition is not None and self.plan.transition is not None:
            x = advance(self.plan.transition, (self.transition.point(x),), self.dt)
        return march_without_storing(self.scheme, cast(Sequence[Coupling], self.blocks), x, self.dt)  # type: ignore[no-any-return]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def march_without_storing(scheme: Scheme, blocks: Sequence[Coupling], state: Pair, dt: float) -> Pair:
    """The last state of the march; its gradient recomputes all others.

    Half-precision states are summed in single precision, since the inverse undoes a sum only as exactly as it was
    rounded; blocks are given, and the caller gets, what they had without this.
    """
    dtype = state[0].dtype
    x, y = (part.to(torch.promote_types(part.dtype, torch.float32)) for part in state)
    parameters = list(nn.ModuleList(blocks).parameters())
    # Parameters are inputs of the function, so that autograd itself (and with it DDP) delivers their gradients.
    x, y = _March.apply(scheme, blocks, dt, dtype, x, y, *parameters)  # type: ignore[no-untyped-call]
    return x.to(dtype), y.to(dtype)


class _March(torch.autograd.Function):
    """The march as one node of the graph, which keeps its last state only."""

    @staticmethod
    def forward(
        ctx: Any,
        scheme: Scheme,
        blocks: Sequence[Coupling],
        dt: float,
        dtype: torch.dtype,
        x: Tensor,
        y: Tensor,
        *parameters: Tensor,
    ) -> Pair:
        conditions = _Conditions(x.device, dtype)
        place = {id(p): j for j, p in enumerate(parameters)}
        modules = [(block.f, block.g) for block in blocks]
        ctx.evaluations = [
            tuple((m, {name: place[id(p)] for name, p in m.named_parameters(remove_duplicate=False)}) for m in pair)
            for pair in modules
        ]
        ctx.scheme, ctx.dt, ctx.conditions = scheme, dt, conditions
        state: Any = (x, y)
        with conditions.autocast():
            for u in march(scheme, [tuple(map(conditions.recorded, pair)) for pair in modules], state, dt):
                state = u
        conditions.close()
        ctx.save_for_backward(*state, *parameters)
        return state  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *adjoint: Tensor) -> tuple[Any, ...]:
        x, y, *parameters = ctx.saved_tensors
        wanted = ctx.needs_input_grad[-len(parameters) :] if parameters else ()
        leaves = [p.detach().requires_grad_(asked) for p, asked in zip(parameters, wanted, strict=True)]
        gradients: list[Tensor | None] = [None] * len(leaves)
        state: Any = (x, y)
        for n in reversed(range(len(ctx.evaluations))):
            pair = [
                _Evaluation(module, places, leaves, ctx.conditions, 2 * n + part)
                for part, (module, places) in enumerate(ctx.evaluations[n])
            ]
            state = ctx.scheme.inverse(state, tuple(evaluation.make for evaluation in pair), ctx.dt)
            adjoint = _step_back(ctx.scheme, pair, state, ctx.dt, adjoint)
            for evaluation in pair:
                for place, gradient in evaluation.gradients.items():
                    known = gradients[place]
                    gradients[place] = gradient if known is None else known + gradient
        return (None, None, None, None, *adjoint, *gradients)


def _step_back(
    scheme: Scheme, pair: Sequence[_Evaluation], state: Pair, dt: float, adjoint: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """The adjoint of one step: autograd through the scheme's own `advance`, over evaluations made already."""
    leaves = tuple(part.detach().requires_grad_() for part in state)
    with torch.enable_grad():
        new = advance(scheme, (Point(leaves, tuple(evaluation.reuse for evaluation in pair)),), dt)
    return torch.autograd.grad(new, leaves, adjoint)


class _Evaluation:
    """One evaluation of `f` or `g`, made again in the backward pass under the conditions of the forward pass.

    Parameters are stood in for by leaves of our own, and buffers by copies, so that the evaluation moves no running
    statistics and sets off no hook on a parameter.
    """

    def __init__(
        self, module: nn.Module, places: dict[str, int], leaves: list[Tensor], conditions: _Conditions, index: int
    ) -> None:
        self.module, self.conditions, self.index = module, conditions, index
        self.stand_ins = {name: leaves[place] for name, place in places.items()}
        self.wanted = {place: leaves[place] for place in places.values() if leaves[place].requires_grad}
        self.gradients: dict[int, Tensor] = {}  # by the parameter's place among those of the whole march

    def make(self, u: Tensor, c: Any, i: int) -> Tensor:
        """The value at `u`, for the inverse; its graph is kept for `reuse`."""
        self.input = u.detach().requires_grad_()
        buffers = {name: b.clone() for name, b in self.module.named_buffers(remove_duplicate=False)}
        with torch.enable_grad(), self.conditions.replayed(self.index):
            self.output: Tensor = functional_call(
                self.module, {**self.stand_ins, **buffers}, (self.input.to(self.conditions.dtype), i)
            )
        value: Tensor = self.output.detach()
        return value

    def reuse(self, u: Tensor, c: Any, i: int) -> Tensor:
        """The same value, for `advance`: `u` is where it was made."""
        value: Tensor = _Known.apply(u, self)  # type: ignore[no-untyped-call]
        return value

    def pull_back(self, adjoint: Tensor) -> Tensor | None:
        """The gradient at the input; those of the parameters are left in `gradients`."""
        if not self.output.requires_grad:  # it depends on nothing
            return None
        inputs = (self.input, *self.wanted.values())
        at_input, *found = torch.autograd.grad(self.output, inputs, adjoint, allow_unused=True)
        self.gradients = {place: g for place, g in zip(self.wanted, found, strict=True) if g is not None}
        return at_input


class _Known(torch.autograd.Function):
    """An evaluation as a node of the step's graph."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, evaluation: _Evaluation) -> Tensor:
        ctx.evaluation = evaluation
        return evaluation.output.detach()

    @staticmethod
    def backward(ctx: Any, adjoint: Tensor) -> tuple[Tensor | None, None]:
        return ctx.evaluation.pull_back(adjoint), None


RandomState = tuple[Tensor, ...]  # of the CPU's generator, and of the device's where that is another


class _Conditions:
    """What an evaluation depends on besides its input: precision, autocast mode, the state of the random generators."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.dtype = dtype
        kind = device.type if torch.amp.is_autocast_available(device.type) else "cpu"
        self.mode = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        self.device = None if device.type in ("cpu", "meta") else device
        self.before: list[RandomState] = []  # one for each evaluation; the same object while nothing is drawn

    def autocast(self) -> AbstractContextManager[None]:
        """The autocast mode. Its cache is off: a weight that was cast without gradients must not serve with them."""
        kind, dtype, enabled = self.mode
        return torch.autocast(kind, dtype, enabled, cache_enabled=False)

    def recorded(self, module: nn.Module) -> Callable[[Tensor, Any, int], Tensor]:
        """The module as a right-hand side that notes the random state before it."""

        def rhs(u: Tensor, c: Any, i: int) -> Tensor:
            self._note()
            value: Tensor = module(u.to(self.dtype), i)
            return value

        return rhs

    def close(self) -> None:
        """After the last evaluation: if nothing was drawn at all, there is nothing to replay."""
        self._note()
        if self.before[-1] is self.before[0]:
            self.before = []

    @contextmanager
    def replayed(self, index: int) -> Iterator[None]:
        """The conditions of evaluation `index`; afterwards the generators go on as if nothing had been."""
        with ExitStack() as stack:
            stack.enter_context(self.autocast())
            if self.before:
                devices, kind = ([], "cuda") if self.device is None else ([self.device], self.device.type)
                stack.enter_context(torch.random.fork_rng(devices, device_type=kind))
                self._restore(*self.before[index])
            yield

    def _note(self) -> None:
        state: RandomState = (torch.get_rng_state(),)
        if self.device is not None:
            state += (torch.get_device_module(self.device).get_rng_state(self.device),)
        if self.before and all(torch.equal(a, b) for a, b in zip(state, self.before[-1], strict=True)):
            state = self.before[-1]
        self.before.append(state)

    def _restore(self, cpu: Tensor, *own: Tensor) -> None:
        torch.set_rng_state(cpu)
        for state in own:
            torch.get_device_module(self.device).set_rng_state(state, self.device)
