"""ResNet is forward Euler, LM-ResNet the LM scheme: to rounding, in parameters, in memory."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stepnet.errors import UserError
from stepnet.nets import Network, ResidualNetwork, Stage, create_model
from stepnet.nets.resnet import blocks_per_stage, cifar_bottleneck_resnet, cifar_resnet, imagenet_resnet
from stepnet.schemes import Point, advance, get_scheme


def parameters(model: Network) -> int:
    return sum(p.numel() for p in model.parameters())


def by_hand(model: ResidualNetwork, x: Tensor, pre_activation: bool) -> Tensor:
    """The network as its schemes' steps, one after another."""
    activation = (lambda u: u) if pre_activation else torch.relu
    u = model.stem(x)
    for stage in model.stages:
        assert isinstance(stage, Stage)
        ks = iter([] if stage.k is None else stage.k)
        past: tuple[Point, ...] = ()
        if stage.transition is not None:
            before, slope = stage.transition.shortcut(u), stage.transition.block(u)
            past = (Point(before, lambda u, c, i, slope=slope: slope),)
            u = activation(before + slope)
        for block in stage.blocks:
            past = (Point(u, lambda u, c, i, block=block: block(u, i)), *past)[: stage.scheme.steps]
            starting = len(past) < stage.scheme.steps
            method = stage.scheme.starter() if starting else stage.scheme
            k = None if starting or stage.k is None else next(ks)
            u = activation(advance(method, past, stage.dts[0], k))
        assert not list(ks)
    features = F.relu(model.norm(u)) if pre_activation else u
    return model.head(features.mean((2, 3)))


@pytest.mark.parametrize("scheme", ["euler", "lm", "heun", "ab2"])
@pytest.mark.parametrize("pre_activation", [False, True])
def test_network_is_the_scheme_applied_to_its_blocks(scheme: str, pre_activation: bool) -> None:
    model = cifar_resnet(20, pre_activation, scheme).double().eval()
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(model(x), by_hand(model, x, pre_activation), rtol=1e-12, atol=1e-12)


def test_lm_at_zero_is_resnet_to_the_bit() -> None:
    lm = create_model("lm_resnet20", k=0.0).eval()
    resnet = create_model("preact_resnet20").eval()
    resnet.load_state_dict({name: p for name, p in lm.state_dict().items() if not name.endswith(".k")})
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(lm(x), resnet(x))


@pytest.mark.parametrize(("name", "k"), [("leapfrog_resnet20", -1.0), ("midpoint2_resnet20", 1.0)])
def test_haber_and_ruthotto_are_special_cases_of_lm(name: str, k: float) -> None:
    """After each stage's start, which is the special scheme's own: Taylor's and Euler's with half the slope."""
    special, lm = (create_model(n, **o).double().eval() for n, o in ((name, {}), ("lm_resnet20", {"k": k})))
    for ours, theirs in zip(special.stages, lm.stages, strict=True):
        u, before = torch.randn(2, 2, ours.blocks[0].convs[0].in_channels, 8, 8, dtype=torch.float64)
        past = (Point(u, lambda u, c, i, b=ours.blocks[-1]: b(u, i)), Point(before))
        step = advance(ours.scheme, past, ours.dts[0])
        torch.testing.assert_close(
            step, advance(theirs.scheme, past, theirs.dts[0], theirs.k[-1]), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize(
    ("depth", "count"), [(20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018), (110, 1_727_962)]
)
def test_parameter_counts(depth: int, count: int) -> None:
    """Parameter-free shortcuts; LM adds one k for each block except the first of the network."""
    with torch.device("meta"):
        plain, lm = (cifar_resnet(depth, pre_activation=True, scheme=scheme) for scheme in ("euler", "lm"))
    assert parameters(plain) == count
    assert parameters(lm) == count + (depth - 2) // 2 - 3  # three stages, whose first steps start
    assert sum(stage.k.numel() for stage in lm.stages) == (depth - 2) // 2 - 3


def test_imagenet_counts_are_torchvisions() -> None:
    """25,557,032 / 44,549,160 / 60,192,808: the counts of torchvision's resnet50, 101 and 152."""
    for depth, count in ((50, 25_557_032), (101, 44_549_160), (152, 60_192_808)):
        with torch.device("meta"):
            assert parameters(imagenet_resnet(depth, num_classes=1000)) == count


def saved_bytes(model: ResidualNetwork, x: Tensor) -> int:
    """What autograd keeps for the backward pass, each storage once, parameters and buffers not counted."""
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(x).sum()
    total = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    loss.backward()
    return total


@pytest.mark.parametrize("depth", [20, 44])
def test_lm_keeps_no_activation_beyond_resnets_but_the_projected_past(depth: int) -> None:
    """Of each stage change one tensor, `P x`, whatever the depth: the other states are the blocks' inputs already."""
    resnet, lm = (cifar_resnet(depth, pre_activation=True, scheme=scheme) for scheme in ("euler", "lm"))
    x = torch.randn(2, 3, 32, 32)
    projected = 4 * 2 * (32 * 16 * 16 + 64 * 8 * 8)  # bytes of float32, batch 2
    assert saved_bytes(lm, x) - saved_bytes(resnet, x) == projected


def test_depths_that_the_family_cannot_have() -> None:
    with pytest.raises(UserError, match=r"depth 21: expected 6n \+ 2, for example 8, 14, 20"):
        cifar_resnet(21)
    with pytest.raises(UserError, match=r"depth 2: expected 9n \+ 2"):
        cifar_bottleneck_resnet(2)
    with pytest.raises(UserError, match=r"depth '20': expected 6n"):
        blocks_per_stage("20", 6)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"ImageNet ResNet of depth 18: expected one of 50, 101, 152"):
        imagenet_resnet(18)


def test_scheme_may_be_an_object() -> None:
    assert cifar_resnet(8, scheme=get_scheme("heun")).scheme.name == "heun"  # type: ignore[arg-type]


def test_he_projects_the_blocks_own_first_activation() -> None:
    model = cifar_bottleneck_resnet(11).double().eval()
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean.normal_()
    first = model.stages[0]
    assert isinstance(first, Stage) and first.transition is not None
    block, project = first.transition.block, first.transition.shortcut
    x = torch.randn(2, 16, 8, 8, dtype=torch.float64)
    activated = F.relu(block.norms[0](x))
    f = block.convs[0](activated)
    for norm, conv in zip(block.norms[1:], block.convs[1:], strict=True):
        f = conv(F.relu(norm(f)))
    torch.testing.assert_close(first(x), project(activated) + f, rtol=1e-13, atol=1e-13)


def test_shortcuts_are_an_option_of_the_backbone() -> None:
    counts = {
        kind: parameters(create_model("lm_resnet20", shortcut=kind))
        for kind in ("subsample", "projection", "raw", "released")
    }
    convolutions, norms = 16 * 32 + 32 * 64, 2 * (16 + 32)
    assert counts["raw"] == counts["projection"] == counts["subsample"] + convolutions
    assert counts["released"] == counts["raw"] + norms
    released = create_model("preact_resnet20", shortcut="released").double().eval()
    transition = released.stages[1].transition
    x = torch.randn(2, 16, 8, 8, dtype=torch.float64)
    norm, _, conv = transition.shortcut
    torch.testing.assert_close(transition.enter(x)[0], conv(F.relu(norm(x))), rtol=1e-13, atol=1e-13)
    assert parameters(create_model("preact_resnet164")) == parameters(create_model("preact_resnet164", shortcut="raw"))
    with pytest.raises(UserError, match=r"shortcut = 'rwa'.*did you mean 'raw'"):
        create_model("resnet20", shortcut="rwa")


@pytest.mark.parametrize("shortcut", ["subsample", "projection", "raw", "released"])
def test_every_shortcut_trains_all_its_parameters_also_when_the_block_is_dropped(shortcut: str) -> None:
    model = cifar_bottleneck_resnet(11, "lm", shortcut)
    x = torch.randn(2, 3, 16, 16)
    model(x).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    model.zero_grad(set_to_none=True)
    model(x, noise=[0.0] * model.depth).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_a_network_of_half_the_width_has_half_the_channels() -> None:
    narrow, full = create_model("lm_resnet20", width=8), create_model("lm_resnet20")
    assert [tuple(one["num_chs"] for one in network.feature_info) for network in (narrow, full)] == [
        (8, 16, 32),
        (16, 32, 64),
    ]
