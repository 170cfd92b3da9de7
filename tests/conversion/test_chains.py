"""Which modules may be blocks, and why some cannot be steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stepnet.conversion import describe
from stepnet.conversion.chains import candidates


class Block(nn.Module):
    def __init__(self, outputs: int = 4) -> None:
        super().__init__()
        self.f = nn.Linear(4, outputs)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        f = self.f(u)
        return u + f if f.shape == u.shape else f


def test_candidates_are_entries_of_lists_and_siblings_but_no_layers() -> None:
    model = nn.Module()
    model.stem = nn.Linear(4, 4)
    model.a, model.b = Block(), Block()
    model.stages = nn.ModuleList([Block(), nn.ReLU()])
    model.alone = nn.Sequential(nn.Linear(4, 4))
    assert set(candidates(model)) == {"a", "b", "stages.0"}


@pytest.mark.parametrize(
    ("model", "name", "reason"),
    [
        (nn.Sequential(Block(), Block(), Block(3)), "2", "changes the shape: (1, 4) to (1, 3)"),
        (
            nn.Sequential(Block(), Block(), nn.Tanh(), Block()),
            "3",
            "no other block of its shape: lm needs 2 blocks in a row",
        ),
    ],
)
def test_a_block_that_stays_is_told_why(model: nn.Module, name: str, reason: str) -> None:
    conversion = describe(model, "lm", example=torch.ones(1, 4))
    assert conversion.steps == 2 and conversion.left | conversion.stays == {name: reason}
