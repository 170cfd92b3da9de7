"""Costs counted on the meta device, against torch's own counter and against counting by hand."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from stepnet import create_model
from stepnet.nets.cost import BATCH, on_meta, profile, saved_bytes


@pytest.mark.parametrize("name", ["resnet20", "lm_resnet20", "revnet38"])
def test_multiply_adds_are_those_of_torchs_counter(name: str) -> None:
    model = create_model(name).train()
    with FlopCounterMode(display=False) as counter:
        model(torch.randn(2, 3, 32, 32))
    assert profile(on_meta(name)).multiply_adds == counter.get_total_flops() // 2 // 2


@pytest.mark.parametrize("name", ["resnet20", "lm_resnet20", "revnet38"])
def test_the_meta_device_saves_what_the_real_one_does(name: str) -> None:
    model = create_model(name).train()
    real, meta = (saved_bytes(model.to(device), torch.empty(2, 3, 32, 32, device=device)) for device in ("cpu", "meta"))
    assert real == meta


def test_a_network_counted_by_hand() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 10))
    found = profile(model, image_size=4)
    assert found.parameters == 3 * 8 * 9 + 8 + 8 * 16 * 10 + 10
    assert found.multiply_adds == 16 * 3 * 8 * 9 + 8 * 16 * 10
    # The convolution saves the image; ReLU its result, which the linear layer saves again: one storage.
    assert found.activation_bytes == 4 * (3 * 16 + 8 * 16)


def test_parameters_and_buffers_are_no_activations() -> None:
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
    images = torch.randn(2, 3, 4, 4)
    statistics = 2 * 3 * 4  # the batch's mean and deviation, one float for each channel
    assert saved_bytes(model, images) == 2 * images.nbytes + statistics


def test_lm_costs_no_memory_beyond_resnet_but_the_projected_past() -> None:
    # The projected input of the second and of the third stage: 32 x 16 x 16 and 64 x 8 x 8 floats, at any depth.
    past = 4 * (32 * 16 * 16 + 64 * 8 * 8)
    for depth in (20, 56):
        resnet, lm = (profile(on_meta(f"{family}_resnet{depth}")) for family in ("preact", "lm"))
        assert 0 <= lm.activation_bytes - resnet.activation_bytes - past <= lm.parameters // BATCH
