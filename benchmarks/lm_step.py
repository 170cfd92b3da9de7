"""What LM costs: a training step against the same blocks under Euler, eager, and what it keeps in memory.

The last rows show what stops it: what LM's own arithmetic adds to a plain step when the values of f are given, done by
torch's `lerp` as in our networks, and with a backward pass written by hand.

python benchmarks/lm_step.py [--repeats 15]
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from script import measure
from torch import Tensor

from stepnet.nets import create_model
from stepnet.schemes.arithmetic import mix
from stepnet.timing.harness import Row, Spread, interleave
from stepnet.timing.rows import lm_over_plain, saved_by_lm
from stepnet.timing.steps import Step, batch, training_step

DEPTHS, SIZE = (20, 56, 110), 16
SHAPES = ((16, 32, 32), (32, 16, 16), (64, 8, 8))  # of the states of the three stages

Carry = Callable[[Tensor, Tensor, Tensor], Tensor]


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    depths = DEPTHS[:1] if quick else DEPTHS
    yield from saved_by_lm(depths)
    yield from lm_over_plain(depths, repeats, SIZE)
    yield from arithmetic_alone(depths, repeats)


def arithmetic_alone(depths: Sequence[int], repeats: int) -> Iterator[Row]:
    """`1 + (t_lm - t_euler) / t_step`: marches through given values of f, beside a plain training step."""
    for depth in depths:
        seconds = interleave(
            {
                "step": training_step(create_model(f"resnet{depth}"), *batch(SIZE)),
                "euler": march(depth, lambda u, v, k: u),
                "lerp": march(depth, mix),
                "by hand": march(depth, ByHand.apply),
            },
            repeats,
        )
        for carry in ("lerp", "by hand"):
            times = zip(seconds[carry], seconds["euler"], seconds["step"], strict=True)
            added = Spread.of([1 + (lm - euler) / step for lm, euler, step in times])
            yield Row(f"plain step and LM's arithmetic / plain step, {carry}, ResNet-{depth}", added)


def march(depth: int, carry: Carry) -> Step:
    """`u_{n+1} = carry(u_n, u_{n-1}, k_n) + f_n` and its gradients; the first step of a stage has no k."""
    blocks = (depth - 2) // 6
    k = torch.full((blocks,), -0.3, requires_grad=True)
    stages = [[torch.randn(SIZE, *shape, requires_grad=True) for _ in range(blocks + 1)] for shape in SHAPES]

    def step() -> None:
        for first, *values in stages:
            before, u = first, first + values[0]
            for n, f in enumerate(values[1:]):
                before, u = u, carry(u, before, k[n]) + f
            torch.autograd.grad(u, [first, *values, k], torch.ones_like(u), allow_unused=True)

    return step


class ByHand(torch.autograd.Function):
    """`(1 - k) u + k v`; its gradients are two multiples of the one that comes, and two inner products."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, k: Tensor) -> Tensor:
        ctx.save_for_backward(u, v, k)
        return u.lerp(v, k)

    @staticmethod
    def backward(ctx: Any, adjoint: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u, v, k = ctx.saved_tensors
        to_v, flat = k * adjoint, adjoint.flatten()
        return adjoint - to_v, to_v, flat.dot(v.flatten()) - flat.dot(u.flatten())


if __name__ == "__main__":
    measure("LM against plain", __doc__, rows, repeats=15)
