"""A module with behaviour added by a subclass of its own class stays the object that it was."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch
from torch import nn

from stepnet.nets.mixins import InstanceMixin, add_mixin, remove_mixin


class Doubled(InstanceMixin):
    def forward(self, *args: Any) -> Any:
        return 2 * self.original.forward(self, *args)


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
