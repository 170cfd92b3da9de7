"""A module with behaviour added by a subclass of its own class stays the object that it was."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepnet
from stepnet.conversion import ConvertedStep
from stepnet.conversion.converted_network import ConvertedNetwork
from stepnet.nets import Stepped
from stepnet.nets.mixins import InstanceMixin, add_mixin, remove_mixin
from stepnet.nets.statistics import BUFFERS, Statistics


class Doubled(InstanceMixin):
    def forward(self, *args: Any) -> Any:
        return 2 * self.step_original.forward(self, *args)


def test_on_and_off_again() -> None:
    layer, x = nn.Linear(2, 2), torch.randn(1, 2)
    plain, attributes, weight = layer(x), dict(vars(layer)), layer.weight
    add_mixin(layer, Doubled)
    assert torch.equal(layer(x), 2 * plain)
    assert isinstance(layer, nn.Linear) and type(layer).__name__ == "Linear" and layer.weight is weight
    assert list(layer.state_dict()) == ["weight", "bias"]
    assert isinstance(layer, Doubled)
    remove_mixin(layer)
    assert type(layer) is nn.Linear and vars(layer) == attributes
    assert torch.equal(layer(x), plain)


def test_one_subclass_for_each_class_also_after_copies() -> None:
    one, other = nn.Linear(2, 2), nn.Linear(3, 3)
    add_mixin(one, Doubled)
    add_mixin(other, Doubled)
    assert type(one) is type(other)
    for again in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert type(again) is type(one) and torch.equal(again.weight, one.weight) and again.weight is not one.weight


class Named(nn.Module):
    """A residual block whose layer is an attribute of some name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.add_module(name, nn.Linear(4, 4))
        self.name = name

    def forward(self, u: Tensor) -> Tensor:
        return u + torch.tanh(getattr(self, self.name)(u))


@pytest.mark.parametrize(
    "name", ["original", "added", "members", "cost", "advance", "visit", "again", "_block", "_step"]
)
def test_what_a_block_calls_its_own_is_not_hidden(name: str) -> None:
    x = torch.randn(2, 4)
    network = nn.Sequential(*(Named(name) for _ in range(3)))
    assert torch.equal(stepnet.convert(network, "lm", x, init="identity")(x), network(x))


def test_names_that_are_added_contain_step() -> None:
    shared = {*dir(nn.BatchNorm2d), *dir(Stepped), *BUFFERS, "memory_in_use", "takes_cost", "compile_by_block"}
    for mixin in (ConvertedStep, ConvertedNetwork, Statistics):
        assert [name for name in dir(mixin) if name not in shared and "step" not in name] == []
