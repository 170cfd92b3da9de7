"""What a conversion did, as data and as text."""

from __future__ import annotations

import torch
from torch import nn

from stepnet.conversion import describe
from stepnet.extras import import_extra


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(4, 4)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return u + self.f(u)


class Other(Block):
    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return self.f(u)


def test_it_counts_residual_blocks_and_says_why_the_others_are_left() -> None:
    network = nn.Sequential(Block(), Block(), Block(), Other(), Block())
    conversion = describe(network, "lm", example=torch.ones(1, 4))
    [stage] = conversion.stages
    assert (conversion.steps, conversion.coefficients, stage.shape) == (3, 2, (4,))
    assert (conversion.converted, conversion.found) == (3, 4)
    assert stage.blocks == ("0", "1", "2") and set(conversion.left) == {"4"} and set(conversion.stays) == {"3"}
    assert str(conversion).splitlines() == [
        "lm: 3 steps in 1 stage, 2 k; 3 of 4 residual blocks converted",
        "  0 … 2: 3 steps of Block at 4, 2 k",
        "  4 is left: no other block of its shape: lm needs 2 blocks in a row",
        "  3 stays: not residual: no path of sums leads from its output back to its input",
    ]


def test_a_one_step_scheme_leaves_the_change_of_shape() -> None:
    block = import_extra("torchvision.models").resnet.BasicBlock
    network = nn.Sequential(block(4, 8, downsample=nn.Conv2d(4, 8, 1)), block(8, 8))
    conversion = describe(network, "heun", example=torch.ones(1, 4, 8, 8))
    assert (conversion.steps, conversion.found) == (1, 2)
    assert conversion.left == {"0": "changes the shape: heun reads no past, and leaves it as it is"}


def test_evaluations_are_told_where_there_are_several() -> None:
    conversion = describe(nn.Sequential(Block(), Block()), "rk4", example=torch.ones(1, 4))
    assert "4 evaluations in a step" in str(conversion) and conversion.coefficients == 0
