"""What a conversion did, as data and as text."""

from __future__ import annotations

import torch
from torch import nn

from stepnet.conversion import describe


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(4, 4)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return u + self.f(u)


class Other(Block):
    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return self.f(u)


def test_it_tells_the_steps_the_coefficients_and_what_stays() -> None:
    conversion = describe(nn.Sequential(Block(), Block(), Block(), Other()), "lm", example=torch.ones(1, 4))
    [stage] = conversion.stages
    assert (conversion.steps, conversion.coefficients, stage.shape) == (3, 2, (4,))
    assert stage.blocks == ("0", "1", "2") and set(conversion.stays) == {"3"}
    first, second, stays = str(conversion).splitlines()
    assert first == "lm: 3 steps in 1 stage, 2 k"
    assert second.startswith("  0 … 2: 3 steps of Block at 4, 2 k")
    assert stays.startswith("  3 stays: not residual")


def test_evaluations_are_told_where_there_are_several() -> None:
    conversion = describe(nn.Sequential(Block(), Block()), "rk4", example=torch.ones(1, 4))
    assert "4 evaluations in a step" in str(conversion) and conversion.coefficients == 0
