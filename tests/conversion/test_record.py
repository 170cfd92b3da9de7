"""What it takes to convert a network again is kept with it."""

import torch
from torch import nn

import stepnet
from stepnet.conversion.summary import RECORD


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, u):
        return u + self.linear(u).tanh()


def test_scheme_rows_names_and_bound_are_kept():
    network = nn.Sequential(*(Block() for _ in range(3)))
    converted = stepnet.convert(network, "lm", torch.zeros(1, 4), blocks=Block, k_bound=(-0.5, 0.5))
    assert getattr(converted, RECORD) == {
        "scheme": "lm",
        "dt": 1,
        "stages": [["0", "1", "2"]],
        "split": [],
        "blocks": ["Block"],
        "k_bound": [-0.5, 0.5],
    }
    assert not hasattr(network, RECORD)
    assert not hasattr(stepnet.revert(converted), RECORD)
