"""The residual network: its head, its states by stage, and one clear line for what cannot be."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import nn

from stepnet.errors import UserError
from stepnet.nets import Backbone, create_model
from stepnet.nets.blocks import basic
from stepnet.nets.cost import profile
from stepnet.nets.densenet import DenseNet
from stepnet.nets.resnet import cifar_resnet
from stepnet.schemes import LinearMultistep, get_scheme


@pytest.mark.parametrize("scheme", ["backward_euler", "coupled"])
def test_schemes_that_make_no_residual_network(scheme: str) -> None:
    with pytest.raises(UserError, match=scheme):
        create_model("resnet20", scheme=scheme)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 1, 32, 32), r"input of shape \(2, 1, 32, 32\): expected \[batch, 3, height, width\]"),
        ((3, 32, 32), r"input of shape \(3, 32, 32\): expected \[batch, 3"),
        ((2, 3, 32, 2), r"image of 32 x 2 pixels: the strides need at least 4"),
    ],
)
def test_bad_images(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        create_model("resnet20")(torch.zeros(shape))


@pytest.mark.parametrize(
    ("option", "value"), [("num_classes", -1), ("num_classes", 2.5), ("in_channels", 0), ("in_channels", True)]
)
def test_bad_counts(option: str, value: object) -> None:
    with pytest.raises(UserError, match=f"{option} = {value}: expected ([01] or more|a whole number)"):
        create_model("resnet20", **{option: value})


@pytest.mark.parametrize("size", [4, 8, 9, 33])
def test_any_image_size_that_the_strides_allow(size: int) -> None:
    model = create_model("lm_resnet20", in_channels=1, num_classes=3).eval()
    assert model(torch.zeros(1, 1, size, size)).shape == (1, 3)


def test_head_can_be_replaced() -> None:
    model = create_model("resnet20").eval()
    x = torch.randn(1, 3, 8, 8)
    model.reset_classifier(5)
    assert model(x).shape == (1, 5) and model.num_classes == 5
    model.double().reset_classifier(7)
    assert model(x.double()).shape == (1, 7)
    assert not model.head.bias.any()  # as in a new network
    with pytest.raises(UserError, match="num_classes = -1"):
        model.reset_classifier(-1)
    assert create_model("resnet20", num_classes=0)(torch.randn(2, 3, 8, 8)).shape == (2, 64)


def test_the_head_in_the_words_of_timm() -> None:
    model = create_model("lm_resnet20", in_chans=1).double().eval()
    x = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    assert model.in_chans == model.in_channels == 1
    pooled = model.forward_head(model.forward_features(x), pre_logits=True)
    torch.testing.assert_close(pooled, model.forward_features(x).mean((2, 3)))
    assert torch.equal(model.get_classifier()(pooled), model(x))


def test_grad_checkpointing_is_a_memory_mode() -> None:
    model = create_model("lm_resnet20")
    model.set_grad_checkpointing()
    assert {stage.memory for stage in model.stages} == {"recompute"}
    model.set_grad_checkpointing(False)
    assert {stage.memory for stage in model.stages} == {"stored"}


@pytest.mark.parametrize("name", ["lm_resnet20", "resnet50", "revnet38", "fractalnet20", "shakeshake26_2x32d"])
def test_intermediates_are_the_last_states_of_stages(name: str) -> None:
    model = create_model(name).double().eval()
    x = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        features, states = model.forward_intermediates(x)
        reference = [stage[-1] for stage in model.trajectory(x)]
        assert torch.equal(features, model.forward_features(x))
    for info, state, last in zip(model.feature_info, states, reference, strict=True):
        assert torch.equal(state, torch.cat(last, dim=1) if isinstance(last, tuple) else last)
        assert state.shape == (1, info["num_chs"], 64 // info["reduction"], 64 // info["reduction"])
        assert type(model.get_submodule(info["module"])).__name__ == "Stage"


def test_intermediates_by_their_numbers() -> None:
    model = create_model("resnet20").double().eval()
    x = torch.randn(1, 3, 8, 8, dtype=torch.float64)
    _, every = model.forward_intermediates(x)
    for indices, chosen in ((2, every[1:]), ([0, -1], [every[0], every[2]])):
        found = model.forward_intermediates(x, indices, intermediates_only=True)
        assert len(found) == 2 and all(map(torch.equal, found, chosen))
    for wrong in (0, 4, [3]):
        with pytest.raises(UserError, match="the network has stages 0 to 2"):
            model.forward_intermediates(x, wrong)
    with pytest.raises(UserError, match="DenseNet has no stages"):
        DenseNet(10, 4).forward_intermediates(x)
    assert not any(module._forward_hooks for module in model.modules())


def test_no_weight_decay_names_norms_biases_and_k() -> None:
    model = create_model("lm_resnet20", k_per_channel=True)
    spared = model.no_weight_decay()
    assert {"stages.0.k", "head.bias", "norm.weight", "stages.1.blocks.0.norms.0.bias"} <= spared
    assert "head.weight" not in spared and "stages.0.blocks.0.convs.0.weight" not in spared


def test_gates_are_one_for_each_block() -> None:
    model = create_model("preact_resnet20").eval()
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        assert torch.equal(model(x, noise=[1] * 9), model(x))
        assert not torch.equal(model(x, noise=[0] * 9), model(x))
    with pytest.raises(UserError, match=r"8 gates: the network has 9 blocks"):
        model(x, noise=[1] * 8)


def test_projection_is_normalised_in_post_activation_nets_only() -> None:
    raw = Backbone(basic, (2, 4), (1, 1), 2, pre_activation=True, shortcut="raw")
    projection = Backbone(basic, (2, 4), (1, 1), 2, shortcut="projection")
    assert isinstance(raw.make_shortcut(2, 4, 2), nn.Conv2d)
    assert [type(layer) for layer in projection.make_shortcut(2, 4, 2)] == [nn.Conv2d, nn.BatchNorm2d]


def test_a_scheme_that_never_acts_is_said_when_its_network_is_built() -> None:
    """AB4 needs four states and its stages have three: the network is RK4's, to the bit."""
    ab4 = LinearMultistep(
        (1, -1, 0, 0, 0), (0, *(Fraction(n, 24) for n in (55, -59, 37, -9))), start=get_scheme("rk4"), order=4
    )
    ab4.name = "ab4"
    with pytest.warns(UserWarning, match=r"ab4 takes 0 of 9 steps, rk4 7 and euler 2; it reads 4 states") as said:
        torch.manual_seed(0)
        network = cifar_resnet(20, pre_activation=True, scheme=ab4).eval()
    assert len(said) == 1
    torch.manual_seed(0)
    images = torch.randn(2, 3, 8, 8)
    rk4 = cifar_resnet(20, pre_activation=True, scheme="rk4").eval()
    rk4.load_state_dict(network.state_dict())
    assert torch.equal(network(images), rk4(images))
    with torch.device("meta"):
        plain = profile(cifar_resnet(20, pre_activation=True))
        cost = profile(cifar_resnet(20, pre_activation=True, scheme=ab4))
    assert (plain.steps, plain.own_steps, cost.steps, cost.own_steps) == (9, 9, 9, 0)
    assert cost.multiply_adds > 3.3 * plain.multiply_adds


def test_schemes_that_act_are_not_warned_of(recwarn: pytest.WarningsRecorder) -> None:
    for scheme in ("euler", "lm", "heun", "ab2", "leapfrog", "midpoint2"):
        create_model("preact_resnet20", scheme=scheme)
    assert not recwarn.list
