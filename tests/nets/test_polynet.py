"""PolyNet's units are the schemes that the paper reads in them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from stepnet.nets import Stage
from stepnet.nets.blocks import Sum, UnsharedWeights
from stepnet.nets.polynet import SCHEMES, Unit, cifar_polynet


def unit_by_hand(unit: Unit, block: nn.Module, u: Tensor) -> Tensor:
    if unit == "poly2":
        first = block(u, 0)
        return u + first + block(first, 1)
    if unit == "poly3":
        first = block(u, 0)
        second = block(first, 1)
        return u + first + second + block(second, 2)
    assert isinstance(block, UnsharedWeights | Sum)
    f, g = block.fs
    return u + f(u) + (g(f(u)) if unit == "mpoly2" else g(u))


@pytest.mark.parametrize("unit", SCHEMES)
def test_network_is_its_units(unit: Unit) -> None:
    model = cifar_polynet(20, unit).double()
    x = torch.randn(4, 3, 16, 16, dtype=torch.float64)
    model(x)  # moves each evaluation's statistics
    model.eval()
    u = model.stem(x)
    for stage in model.stages:
        assert isinstance(stage, Stage)
        if stage.transition is not None:
            u = stage.transition.shortcut(u) + stage.transition.block(u)
        for block in stage.blocks:
            u = unit_by_hand(unit, block, u)
    torch.testing.assert_close(model.forward_features(x), model.norm(u).relu(), rtol=1e-12, atol=1e-12)


def test_sharing_costs_nothing_and_own_weights_double_the_units() -> None:
    with torch.device("meta"):
        counts = {unit: sum(p.numel() for p in cifar_polynet(20, unit).parameters()) for unit in SCHEMES}
    assert counts["poly2"] == counts["poly3"] == 269_722  # as ResNet-20
    blocks = 3 * (2 * 9 * 16**2 + 4 * 16) + 2 * (2 * 9 * 32**2 + 4 * 32) + 2 * (2 * 9 * 64**2 + 4 * 64)
    assert counts["mpoly2"] == counts["two_way"] == 269_722 + blocks
