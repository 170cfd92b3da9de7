"""DenseNet, the baseline that is no scheme."""

from __future__ import annotations

import pytest
import torch

from stepnet.errors import UserError
from stepnet.nets.densenet import DenseLayer, DenseNet


def test_a_layer_appends_its_channels() -> None:
    layer = DenseLayer(6, 4, bottleneck=True).eval()
    u = torch.randn(2, 6, 8, 8)
    out = layer(u)
    assert torch.equal(out[:, :6], u) and torch.equal(out[:, 6:], layer.f(u))


def test_channels_grow_and_bottlenecks_halve_them() -> None:
    assert DenseNet(13, 4).num_features == 16 + 9 * 4
    assert DenseNet(16, 4, bottleneck=True).num_features == ((8 + 8) // 2 + 8) // 2 + 8


def test_depths_that_it_cannot_have() -> None:
    with pytest.raises(UserError, match=r"depth 20: expected 3n \+ 4"):
        DenseNet(20, 4)
    with pytest.raises(UserError, match=r"depth 13: expected 6n \+ 4"):
        DenseNet(13, 4, bottleneck=True)
