"""As many steps as an image needs: a sample leaves a stage after a step that hardly changes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stepnet.errors import UserError
from stepnet.schemes import Coefficient, is_traced

if TYPE_CHECKING:
    from stepnet.nets.stage import Stage
    from stepnet.nets.trajectories import Visit


class EarlyExit:
    """Let a sample skip the rest of a stage after a step with `|u_{n+1} - u_n| <= tolerance |u_{n+1}|`.

    One object for each forward pass, `network(x, exit=EarlyExit(0.1))`; `steps` are then those that each sample took,
    over all stages. `network(x, exit=0.1)` does the same without counting.
    """

    def __init__(self, tolerance: float) -> None:
        if not 0 <= tolerance < math.inf:
            raise UserError(f"exit = {tolerance:g}: expected a relative change of the state, 0 or more, such as 0.1")
        self.tolerance, self.steps = tolerance, torch.zeros((), dtype=torch.long)

    def march(
        self, stage: Stage, x: Any, gates: Sequence[Coefficient] | None = None, visit: Visit | None = None
    ) -> Any:
        """Return the last state of each sample in the stage; `visit` must be None."""
        self._check(stage, visit)
        march = stage.march if gates is None else stage.march.by_scheme(gates)
        us, fs = stage.enter(x, None)
        slopes: tuple[Tensor, ...] = ()
        last, active = us[0].clone(), torch.arange(len(x), device=x.device)
        taken = torch.zeros_like(active)
        for step, f, k in zip(march.step_functions, fs, stage.ks(), strict=True):
            new = step(f, us, slopes, k)
            if march.keeps_f:
                new, slope = new
                slopes = (slope, *slopes)[: stage.scheme.steps - 1]
            new = new if march.after is None else march.after(new)
            last = last.to(new.dtype)  # under autocast, a k for each channel widens the state
            last[active] = new
            taken[active] += 1
            moving = _norms(new - us[0]) > self.tolerance * _norms(new)
            if not moving.any():
                break
            active = active[moving]
            us = tuple(u[moving] for u in (new, *us)[: march.window])
            slopes = tuple(f[moving] for f in slopes)
        self.steps = self.steps.to(taken.device) + taken
        return last

    def _check(self, stage: Stage, visit: Visit | None) -> None:
        what = f"exit = {self.tolerance:g}"
        if stage.training:
            raise UserError(f"{what} in training, where every sample takes all steps: call network.eval() first")
        if visit is not None:
            raise UserError(
                f"{what}: samples take different numbers of steps, so that the batch has no states u_0 … u_N for a "
                "trajectory, or for the past that LM-ResNeXt hands to the next stage; leave out exit"
            )
        if stage.scheme.streams or stage.scheme.partitioned or stage.plan.entry == "with past":
            raise UserError(f"{what}: a stage of {stage.scheme.name!r} carries more than one state; take euler or lm")


def early_exit(exit: float | EarlyExit | None, cost: object = None) -> EarlyExit | None:
    """Return the exit of a forward pass from a tolerance, or None; a traced network takes all steps."""
    if exit is None or is_traced(exit):
        return None
    if cost is not None:
        raise UserError("exit with a running cost: the cost is that of all steps; leave out one of them")
    return exit if isinstance(exit, EarlyExit) else EarlyExit(exit)


def _norms(u: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(u.flatten(1), dim=1)
    return norms
