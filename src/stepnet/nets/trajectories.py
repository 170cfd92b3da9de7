"""The trajectory `u_0 … u_N` of a network: what its scheme computes, stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol, runtime_checkable

from torch import nn
from torch.utils.hooks import RemovableHandle

from stepnet.errors import UserError
from stepnet.schemes.arithmetic import State

Visit = Callable[[State], object]  # called with each state of a stage, when it is made


@runtime_checkable
class Watched(Protocol):
    """A module that makes states: a stage of ours, or a block that became a step."""

    def watch_states(self, stages: list[list[State]]) -> RemovableHandle:
        """From now on, add the states of each call to `stages`, until the handle is removed."""
        ...


def trajectory(model: nn.Module, *args: Any, **options: Any) -> list[list[State]]:
    """Call the network and return the states that it went through, one list `[u_0, …, u_N]` for each stage.

    `u_0` is what enters the stage's equation: where a transition changes the shape, the projected input. The network
    runs as it stands: call `eval()` first for running statistics, and under `torch.no_grad()` where no gradient is
    wanted.
    """
    watched = [module for module in model.modules() if isinstance(module, Watched)]
    if not watched:
        raise UserError(f"{type(model).__name__} has no trajectory: none of its parts is marched by a scheme")
    stages: list[list[State]] = []
    with ExitStack() as hooks:
        for module in watched:
            hooks.enter_context(module.watch_states(stages))
        model(*args, **options)
    return stages


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
