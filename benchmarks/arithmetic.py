"""The cost of LM's arithmetic in a training step: steps with precomputed values of f, next to a plain training step.

u_{n+1} = (1 - k_n) u_n + k_n u_{n-1} + f_n against u_{n+1} = u_n + f_n, forward and backward: by torch's `lerp`, as in
our networks, and with a handwritten backward pass, to see what that would gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from stepnet.schemes.arithmetic import mix
from stepnet.timing.harness import Row, Spread, interleave
from stepnet.timing.steps import Step

Carry = Callable[[Tensor, Tensor, Tensor], Tensor]
Stages = Sequence[tuple[tuple[int, ...], int]]  # the shape of the states in a stage, a batch, and how many steps it has


def arithmetic_alone(name: str, plain_step: Step, stages: Stages, repeats: int) -> Iterator[Row]:
    """Yield `1 + (t_lm - t_euler) / t_step`, formed within each repetition."""
    carries: dict[str, Carry] = {"lerp": mix, "by hand": ByHand.apply}
    marches = {"euler": march(stages, lambda u, v, k: u)} | {by: march(stages, carry) for by, carry in carries.items()}
    seconds = interleave({"step": plain_step, **marches}, repeats)
    for by in carries:
        times = zip(seconds[by], seconds["euler"], seconds["step"], strict=True)
        added = Spread.of([1 + (lm - euler) / step for lm, euler, step in times])
        yield Row(f"LM's arithmetic alone, beside the plain step, {by}, {name}", added)


def halving(size: int, width: int, side: int, steps: Sequence[int]) -> Stages:
    """Return stages with these numbers of steps, each with twice the channels and half the sides of the one before."""
    return [((size, width * 2**j, side // 2**j, side // 2**j), count) for j, count in enumerate(steps)]


def march(stages: Stages, carry: Carry) -> Step:
    """Return a pass of `u_{n+1} = carry(u_n, u_{n-1}, k_n) + f_n` and its gradients; a stage's first step has no k."""
    slopes = [[torch.randn(shape, requires_grad=True) for _ in range(steps + 1)] for shape, steps in stages]
    k = torch.full((max(steps for _, steps in stages),), -0.3, requires_grad=True)

    def step() -> None:
        for first, *values in slopes:
            before, u = first, first + values[0]
            for n, f in enumerate(values[1:]):
                before, u = u, carry(u, before, k[n]) + f
            torch.autograd.grad(u, [first, *values, k], torch.ones_like(u), allow_unused=True)

    return step


class ByHand(torch.autograd.Function):
    """`(1 - k) u + k v`; its gradients are two multiples of the incoming one, and two inner products."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, k: Tensor) -> Tensor:
        ctx.save_for_backward(u, v, k)
        return u.lerp(v, k)

    @staticmethod
    def backward(ctx: Any, adjoint: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u, v, k = ctx.saved_tensors
        to_v, flat = k * adjoint, adjoint.flatten()
        return adjoint - to_v, to_v, flat.dot(v.flatten()) - flat.dot(u.flatten())
