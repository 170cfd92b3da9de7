"""The trajectory `u_0 … u_N` of a network, what its scheme computes stage by stage, and the running cost along it.

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

Visit = Callable[[State], object]  # called with each state of a stage, when it is made


def trajectory(model: nn.Module, *args: Any, **options: Any) -> list[list[State]]:
    """Call the network and return the states that it went through, one list `[u_0, …, u_N]` for each stage.

    `u_0` is what enters the stage's equation: where a transition changes the shape, the projected input. The network
    runs as it stands: call `eval()` first for running statistics, and under `torch.no_grad()` where no gradient is
    wanted.
    """
    watched = [module for module in model.modules() if isinstance(module, Stepped)]
    if not watched:
        raise UserError(f"{type(model).__name__} has no trajectory: none of its parts is marched by a scheme")
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
    """Hand a `visit` to each call of a stage, beside the one that its caller may pass."""

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

    One object for each forward pass. A dropped block is not computed and costs nothing; drop_path computes f for every
    sample, and all of them pay.
    """

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0

    def watch(self, f: Callable[..., State], dt: float) -> Callable[..., State]:
        """`f(u, i)`, or `rhs(u, c, i)`, itself; its first evaluation in a step, `f(X_n)`, is added to the total."""

        def watched(u: State, *place: Any) -> State:
            found = f(u, *place)
            if place[-1] == 0:
                slope: Tensor = found.value if isinstance(found, Difference) else found
                wide = slope.to(torch.promote_types(slope.dtype, torch.float32))
                self.total = self.total + dt / len(slope) * wide.square().sum()
            return found

        return watched


def takes_cost(network: nn.Module) -> bool:
    """Whether its forward pass can sum a running cost: ours, and converted networks."""
    return getattr(network, "takes_cost", False) or "cost" in inspect.signature(network.forward).parameters
