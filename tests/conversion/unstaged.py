"""A network of ours written as others write theirs: to be converted, and compared with ours."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Step(nn.Module):
    """A block of ours as others write it: `relu(P u + f(u))`, or without the ReLU."""

    def __init__(self, block: nn.Module, shortcut: nn.Module | None, relu: bool) -> None:
        super().__init__()
        self.block, self.shortcut, self.relu = block, shortcut, nn.ReLU(inplace=True) if relu else None

    def forward(self, u: Tensor) -> Tensor:
        carried = u if self.shortcut is None else self.shortcut(u)
        total = carried + self.block(u)
        return total if self.relu is None else self.relu(total)


class Unstaged(nn.Module):
    """What somebody else would have written, over the modules and parameters of a network of ours."""

    def __init__(self, ours: nn.Module) -> None:
        super().__init__()
        self.stem, self.norm, self.head = ours.stem, ours.norm, ours.head
        self.pre = ours.pre_activation
        steps = []
        for stage in ours.stages:
            transition = stage.transition
            if transition is not None:
                steps.append(Step(transition.block, transition.shortcut, not self.pre))
            steps += [Step(block, None, not self.pre) for block in stage.blocks]
        self.steps = nn.Sequential(*steps)

    def forward(self, x: Tensor) -> Tensor:
        u = self.norm(self.steps(self.stem(x)))
        return self.head((torch.relu(u) if self.pre else u).mean((2, 3)))
