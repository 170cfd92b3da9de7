"""The steps of a network: one record for each, in our stages and in blocks that `convert` made steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stepnet.schemes import Scheme, State, StepMethod, scheme_of_step


@dataclass(frozen=True)
class NetworkStep:
    """One step of a network: `u_{n+1}` of its stage, with the block `f`."""

    path: str  # of the block in the network
    network_scheme: Scheme
    method: StepMethod
    dt: float
    coefficient: Tensor | None  # k, or one for each channel; None in a starting step
    block: nn.Module
    place: int = 0  # number of steps before it in its stage
    stage: object = None  # equal for all steps of a stage
    call: str = ""  # which step of the block it is, if it takes several: ` (call 2)`, `:1`
    role: Any = None  # its `conversion.Role`, if `convert` made it

    @property
    def name(self) -> str:
        """The path of the block, and which of its steps it is if it takes several."""
        return self.path + self.call

    @property
    def scheme(self) -> Scheme:
        """The scheme that takes this step: the network's, its starter, or Euler's in a transition."""
        return scheme_of_step(self.network_scheme, self.method)

    @property
    def transition(self) -> bool:
        """Whether the step changes the shape: f reads the state before the change."""
        return self.method == "transition"

    @property
    def ks(self) -> tuple[float, ...]:
        """The values of the coefficient."""
        return () if self.coefficient is None else tuple(self.coefficient.detach().flatten().tolist())

    @property
    def k(self) -> float | None:
        """The coefficient, or its mean over the channels."""
        return fmean(self.ks) if self.ks else None


@runtime_checkable
class Stepped(Protocol):
    """A module that a scheme steps through: a stage, or a block that `convert` made a step."""

    def network_steps(self) -> Iterator[NetworkStep]:
        """The steps, with paths relative to the module."""

    def named_coefficients(self) -> Iterator[tuple[str, Tensor]]:
        """Each learned coefficient, with the name of its step relative to the module."""

    def watch_states(self, stages: list[list[State]]) -> RemovableHandle:
        """Append the states of each later call to `stages`, until the handle is removed."""


def steps_by_stage(model: nn.Module) -> list[list[NetworkStep]]:
    """Return the steps of every stage, in order of depth; empty for a network without a scheme."""
    stages: list[dict[int, NetworkStep]] = []
    for path, module in model.named_modules():
        for step in module.network_steps() if isinstance(module, Stepped) else ():
            same = (known for known in stages if next(iter(known.values())).stage == step.stage)
            steps = next((known for known in same if step.place not in known), None)
            if steps is None:
                stages.append(steps := {})
            steps[step.place] = replace(step, path=".".join(filter(None, (path, step.path))))
    return [[steps[place] for place in sorted(steps)] for steps in stages]
