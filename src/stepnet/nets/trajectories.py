"""The trajectory `u_0 … u_N` of a network, stage by stage, and the running cost along it.

The running cost is that of the stochastic control problem (paper, section 3.1): `min E L(X(T)) + integral of R`. R as a
function of the parameters alone is weight decay, which belongs to the optimiser. The kinetic cost depends on the path,
and is summed while the network marches.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stepnet.errors import UserError
from stepnet.nets.network_steps import Stepped
from stepnet.schemes import Difference, State

Visit = Callable[[State], object]  # called with each new state of a stage


def trajectory(model: nn.Module, *args: Any, **options: Any) -> list[list[State]]:
    """Call the network and return the states that it went through, one list `[u_0, …, u_N]` for each stage.

    `u_0` is the first state of the shape of its stage: the projected input after a transition. Modes are not changed:
    call `eval()` first for running statistics, and use `torch.no_grad()` if no gradient is needed.
    """
    watched = [module for module in model.modules() if isinstance(module, Stepped)]
    if not watched:
        raise UserError(f"{type(model).__name__} has no trajectory: no part of it is stepped through by a scheme")
    stages: list[list[State]] = []
    with ExitStack() as hooks:
        for module in watched:
            hooks.enter_context(module.watch_states(stages))
        model(*args, **options)
    return stages


@contextmanager
def training_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Set training or evaluation mode, and restore each module's flag on exit: norms may be frozen one by one."""
    flags = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag


def watch_calls(stage: nn.Module, stages: list[list[State]]) -> RemovableHandle:
    """Pass a `visit` to each call of a stage, in addition to that of its caller."""

    def begin(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        states: list[State] = []
        stages.append(states)
        other: Visit | None = options.get("visit")

        def visit(u: State) -> None:
            states.append(u)
            if other is not None:
                other(u)

        return args, {**options, "visit": visit}

    return stage.register_forward_pre_hook(begin, with_kwargs=True)


class KineticCost:
    """`sum_n |f(X_n)|^2 dt`, the mean over the batch: `model(x, cost=cost)`, then `loss + weight * cost.total`.

    Use one object for each forward pass. A dropped block is not computed and costs nothing; with drop_path, f is
    computed and counted for every sample.
    """

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0

    def watch(self, f: Callable[..., State], dt: float) -> Callable[..., State]:
        """Wrap `f(u, i)` or `rhs(u, c, i)`: the first evaluation in a step, `f(X_n)`, is added to the total."""

        def watched(u: State, *place: Any) -> State:
            value = f(u, *place)
            if place[-1] == 0:
                slope: Tensor = value.value if isinstance(value, Difference) else value
                wide = slope.to(torch.promote_types(slope.dtype, torch.float32))
                self.total = self.total + dt / len(slope) * wide.square().sum()
            return value

        return watched


def takes_cost(network: nn.Module) -> bool:
    """Whether the forward pass can sum a running cost, in our networks and in converted ones."""
    return getattr(network, "takes_cost", False) or "cost" in inspect.signature(network.forward).parameters
