"""The right-hand sides: what is in them, in which order, and what a second evaluation shares with the first."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.nets.blocks import (
    PostActivation,
    PreActivation,
    Subsample,
    Sum,
    UnsharedWeights,
    basic,
    bottleneck,
    initialise,
    norm,
)
from stepnet.nets.statistics import at_evaluation


def kernel(layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.Conv2d)
    return layer.weight


def test_pre_activation_is_norm_relu_conv() -> None:
    block = PreActivation(basic(4, 4)).double().eval()
    u = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    by_hand = u
    for layer, convolve in zip(block.norms, block.convs, strict=True):
        by_hand = F.conv2d(F.relu(layer(by_hand)), kernel(convolve), padding=1)
    assert torch.equal(block(u), by_hand)


def test_post_activation_leaves_the_last_relu_to_the_step() -> None:
    block = PostActivation(bottleneck(8, 8)).double()
    out = block(torch.randn(4, 8, 8, 8, dtype=torch.float64))
    assert (out < 0).any()
    # ends in a normalisation: each channel has mean 0 in training
    assert out.mean((0, 2, 3)).abs().max() < 1e-12


def test_bottleneck_widths_groups_and_stride() -> None:
    first, middle, last = bottleneck(64, 256, stride=2, width=128, groups=8)
    assert (first.out_channels, middle.groups, middle.stride, last.out_channels) == (128, 8, (2, 2), 256)
    assert bottleneck(64, 256)[1].in_channels == 64  # a quarter of the outputs


def test_each_evaluation_has_its_own_statistics_and_shares_the_affine_part() -> None:
    layer = norm(3, evaluations=2)
    assert {name for name, _ in layer.named_parameters()} == {"weight", "bias"}
    u = torch.randn(8, 3, 4, 4) + 5
    at_evaluation(1, layer, u)
    assert torch.equal(layer.running_mean, torch.zeros(3))
    torch.testing.assert_close(layer.get_buffer("running_mean_1"), 0.1 * u.mean((0, 2, 3)))
    layer.eval()
    expected = F.batch_norm(u, layer.get_buffer("running_mean_1"), layer.get_buffer("running_var_1"))
    torch.testing.assert_close(at_evaluation(1, layer, u), expected)


def test_statistics_of_a_file_load_with_and_without_those_of_further_evaluations() -> None:
    layer = norm(3, evaluations=2)
    names = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    plain = {name: torch.tensor(7) if name == names[-1] else torch.rand(3) for name in names}
    layer.load_state_dict(plain)
    assert torch.equal(layer.get_buffer("running_var_1"), plain["running_var"])
    saved = plain | {"running_mean_1": torch.rand(3), "running_var_1": torch.rand(3)}
    assert saved.keys() == layer.state_dict().keys()
    layer.load_state_dict(saved)
    assert all(torch.equal(value, saved[name]) for name, value in layer.state_dict().items())


def test_update_bn_renews_the_statistics_of_every_evaluation() -> None:
    """`torch.optim.swa_utils.update_bn` resets them and takes the plain mean over batches, `momentum=None`."""
    block = PreActivation(basic(3, 3), evaluations=2)
    batches = [torch.randn(8, 3, 4, 4) + shift for shift in (1, 5)]

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = block

        def forward(self, u: Tensor) -> Tensor:
            return block(u, 0) + block(2 * u, 1)

    block(batches[0] - 100, 1)  # what must be forgotten
    torch.optim.swa_utils.update_bn(batches, Twice())
    means = torch.stack([batch.mean((0, 2, 3)) for batch in batches]).mean(0)
    torch.testing.assert_close(block.norms[0].get_buffer("running_mean"), means)
    torch.testing.assert_close(block.norms[0].get_buffer("running_mean_1"), 2 * means)


def test_synchronised_norms_are_refused_where_they_would_mix_evaluations() -> None:
    block = nn.SyncBatchNorm.convert_sync_batchnorm(PreActivation(basic(3, 3), evaluations=2)).eval()
    u = torch.randn(2, 3, 4, 4)
    block(u, 0)
    with pytest.raises(UserError, match=r"SyncBatchNorm has one set of statistics.*leave out sync_bn"):
        block(u, 1)


def test_one_evaluation_takes_torchs_own_norm() -> None:
    assert type(norm(3)) is nn.BatchNorm2d


def test_own_weights_picks_by_evaluation_and_sum_adds_branches() -> None:
    fs = [PreActivation(basic(4, 4)).eval() for _ in range(2)]
    u = torch.randn(2, 4, 8, 8)
    assert torch.equal(UnsharedWeights(fs)(u, 1), fs[1](u))
    assert torch.equal(Sum(fs)(u), fs[0](u) + fs[1](u))


def test_subsample_is_parameter_free() -> None:
    shortcut = Subsample(2, 5, 2)
    u = torch.randn(1, 2, 8, 8)
    out = shortcut(u)
    assert torch.equal(out[:, :2], u[:, :, ::2, ::2])
    assert torch.equal(out[:, 2:], torch.zeros(1, 3, 4, 4))
    assert not list(shortcut.parameters())
    assert "stride=2" in repr(shortcut)


def test_initialisation_is_hes() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(16, 64, 3)  # fewer inputs: He's variance counts the outputs, for the backward pass
    head = nn.Linear(64, 10)
    initialise(nn.Sequential(layer, head))
    assert abs(layer.weight.std().item() - math.sqrt(2 / (64 * 9))) < 0.001
    assert torch.equal(head.bias, torch.zeros(10))
