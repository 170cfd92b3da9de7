"""`stepnet.coefficients`: k_n by layer."""

from __future__ import annotations

import torch

import stepnet
from stepnet.nets import create_model


def test_by_layer_in_order_of_depth() -> None:
    model = create_model("lm_resnet20")
    found = stepnet.coefficients(model)
    assert list(found) == [
        "stages.0.blocks.1",
        "stages.0.blocks.2",
        "stages.1.blocks.0",
        "stages.1.blocks.1",
        "stages.2.blocks.0",
        "stages.2.blocks.1",
    ]
    torch.testing.assert_close(torch.tensor(list(found.values())), torch.cat([stage.k for stage in model.stages]).data)


def test_projected_past_gives_the_transition_a_coefficient() -> None:
    found = stepnet.coefficients(create_model("lm_resnext29_8x64d", k=-0.5))
    assert found["stages.1.transition"] == -0.5 and "stages.0.transition" not in found


def test_per_channel_and_none() -> None:
    found = stepnet.coefficients(create_model("lm_resnet20", k_per_channel=True))
    value = found["stages.2.blocks.1"]
    assert isinstance(value, list) and len(value) == 64
    assert stepnet.coefficients(create_model("resnet20")) == {}
