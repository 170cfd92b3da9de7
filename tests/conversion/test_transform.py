"""`convert` and `revert` on torchvision's networks: exact at k = 0, the right past at k = -0.5, clear errors."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from tests.conversion.agreement import check_agreement, run, set_k
from torch import nn

import stepnet
from stepnet.conversion import describe

models = pytest.importorskip("torchvision.models")

IMAGE = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def resnet18() -> nn.Module:
    torch.manual_seed(0)
    network: nn.Module = models.resnet18(num_classes=10).eval()
    return network


def small(name: str) -> nn.Module:
    """A torchvision network of that family, with as few layers as its builder allows."""
    torch.manual_seed(0)
    resnet, convnext = models.resnet, models.convnext
    built: dict[str, Any] = {
        "resnet50": lambda: models.ResNet(resnet.Bottleneck, [2, 3, 1, 1], num_classes=4),
        "wide_resnet50_2": lambda: models.ResNet(resnet.Bottleneck, [2, 2, 1, 1], num_classes=4, width_per_group=128),
        "resnext50": lambda: models.ResNet(
            resnet.Bottleneck, [2, 2, 1, 1], num_classes=4, groups=32, width_per_group=4
        ),
        "convnext": lambda: models.ConvNeXt([convnext.CNBlockConfig(16, 32, 2), convnext.CNBlockConfig(32, None, 3)]),
        "swin": lambda: models.SwinTransformer([4, 4], 16, [2, 4], [2, 2], [4, 4], num_classes=4),
        "vit": lambda: models.VisionTransformer(32, 8, 3, 2, 32, 64, num_classes=4),
    }
    network: nn.Module = built[name]() if name in built else models.get_model(name, num_classes=4)
    return network


@pytest.mark.parametrize(
    ("name", "steps", "coefficients"),
    [
        ("resnet18", 8, 4), ("resnet50", 5, 3), ("wide_resnet50_2", 4, 2), ("resnext50", 4, 2),
        ("regnet_y_400mf", 15, 12), ("convnext", 5, 3), ("swin", 6, 4), ("vit", 3, 2), ("efficientnet_b0", 7, 4),
        ("mobilenet_v2", 9, 5), ("mobilenet_v3_small", 4, 2),
    ],
)  # fmt: skip
def test_torchvision_agrees_with_the_original_and_with_the_reference(name: str, steps: int, coefficients: int) -> None:
    conversion = check_agreement(small(name), IMAGE)
    assert (conversion.steps, conversion.coefficients) == (steps, coefficients)


@pytest.mark.parametrize("name", ["resnet18", "vit", "mobilenet_v2"])
def test_without_an_example_it_is_guessed(name: str) -> None:
    assert describe(small(name)).steps == describe(small(name), example=IMAGE).steps


def test_a_copy_unless_in_place() -> None:
    network = resnet18()
    before = copy.deepcopy(network.state_dict())
    converted = stepnet.convert(network, "lm", IMAGE)
    assert converted is not network
    assert network.state_dict().keys() == before.keys()
    assert stepnet.convert(network, "lm", IMAGE, inplace=True) is network
    assert len(network.state_dict()) == len(before) + 4


def test_revert_gives_back_the_original_modules() -> None:
    network = resnet18()
    modules, text, output = dict(network.named_modules()), str(network), run(network, IMAGE)[0]
    stepnet.convert(network.layer1, "lm", torch.randn(1, 64, 8, 8), inplace=True, init=-0.5)  # a part of it
    assert not torch.equal(run(network, IMAGE)[0], output)
    stepnet.revert(network)
    stepnet.convert(network, "lm", IMAGE, inplace=True, init=-0.5)
    assert not torch.equal(run(network, IMAGE)[0], output)
    assert stepnet.revert(network) is network
    assert all(module is modules[name] for name, module in network.named_modules())
    assert str(network) == text
    assert torch.equal(run(network, IMAGE)[0], output)
    assert list(network.state_dict()) == list(resnet18().state_dict())
    assert not any(hasattr(module, "step_conversion") for module in network.modules())
    with pytest.raises(stepnet.UserError, match="nothing to revert"):
        stepnet.revert(network)


def test_state_dicts_load_strictly() -> None:
    network = resnet18()
    converted = stepnet.convert(network, "lm", IMAGE, init=-0.5)
    other = stepnet.convert(models.resnet18(num_classes=10).eval(), "lm", IMAGE, init="identity")
    other.load_state_dict(network.state_dict())  # the original's, strictly: k stays
    assert torch.equal(run(other, IMAGE)[0], run(network, IMAGE)[0])
    other.load_state_dict(converted.state_dict())
    assert torch.equal(run(other, IMAGE)[0], run(converted, IMAGE)[0])
    broken = {key: value for key, value in network.state_dict().items() if key != "layer1.0.conv1.weight"}
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict(broken)


def test_coefficients_are_told_by_layer() -> None:
    torch.manual_seed(0)
    found = stepnet.coefficients(stepnet.convert(resnet18(), "lm", IMAGE))
    assert list(found) == [f"layer{n}.1.step_k" for n in (1, 2, 3, 4)]
    assert all(-0.1 <= k <= 0 for k in found.values())  # type: ignore[operator]
    assert len(set(map(str, found.values()))) == 4
    given = stepnet.coefficients(stepnet.convert(resnet18(), stepnet.get_scheme("lm", k=-0.5), IMAGE))
    assert set(given.values()) == {-0.5}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["heun", "rk4", "midpoint", "neumann2", "picard2", "leapfrog", "ab2", "ab3", "fractal2"]
)
def test_other_schemes_match_the_scheme_on_the_same_blocks(name: str) -> None:
    """Against `march` itself on `f = B - id`, block by block, in float64."""
    torch.manual_seed(0)
    network = nn.Sequential(*(Residual(4) for _ in range(5))).double()
    u = torch.randn(2, 4, dtype=torch.double)
    fs = [lambda v, c, i, block=block: block(v) - v for block in network]
    *_, expected = stepnet.schemes.march(stepnet.get_scheme(name), fs, u)
    torch.testing.assert_close(stepnet.convert(network, name, u)(u), expected)


def test_split_blocks_take_other_schemes_before_their_activation() -> None:
    network = resnet18()
    block, u = network.layer1[0], torch.randn(1, 64, 4, 4)
    f = lambda v: block.bn2(block.conv2(block.relu(block.bn1(block.conv1(v)))))  # noqa: E731
    expected = torch.relu(u + (f(u) + f(u + f(u))) / 2)
    converted = stepnet.convert(network, "heun", IMAGE)
    torch.testing.assert_close(converted.layer1[0](u), expected)


def test_the_caller_names_blocks_by_class_or_pattern() -> None:
    network = resnet18()
    block = models.resnet.BasicBlock
    by_class = stepnet.convert(network, "lm", IMAGE, blocks=block)
    by_name = stepnet.convert(network, "lm", IMAGE, blocks="BasicBlock")
    assert len(stepnet.coefficients(by_class)) == len(stepnet.coefficients(by_name)) == 4
    some = stepnet.convert(network, "lm", IMAGE, blocks=["layer1.*", "layer3.*"])
    assert list(stepnet.coefficients(some)) == ["layer1.1.step_k", "layer3.1.step_k"]
    plain = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))  # not residual, but the caller says so
    assert len(stepnet.coefficients(stepnet.convert(plain, "lm", torch.randn(1, 4), blocks=nn.Linear))) == 2


def test_a_block_that_works_in_place_gets_a_copy() -> None:
    network = nn.Sequential(nn.Linear(4, 4), *(InPlace(4) for _ in range(4)))
    conversion = check_agreement(network, torch.randn(2, 4))
    assert "work in place" in str(conversion)


class Altered(nn.Module):
    """Adds a bias between the second and the third of its blocks."""

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Residual(4) for _ in range(4))
        self.inplace = inplace

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        for n, block in enumerate(self.blocks):
            u = block(u)
            if n == 1:
                u = u.add_(1) if self.inplace else u + 1
        return u


@pytest.mark.parametrize("inplace", [False, True])
def test_a_state_altered_between_blocks_ends_the_row(inplace: bool) -> None:
    found = describe(Altered(inplace), example=torch.randn(2, 4))
    assert [stage.blocks for stage in found.stages] == [("blocks.0", "blocks.1"), ("blocks.2", "blocks.3")]


def test_a_network_without_values_is_planned_alike() -> None:
    with torch.device("meta"):
        empty = models.resnet18()
    assert describe(empty) == describe(models.resnet18())


def test_the_report_counts_evaluations() -> None:
    network, u = nn.Sequential(*(Residual(4) for _ in range(4))), torch.randn(1, 4)
    assert "4 evaluations in a step" in str(describe(network, "rk4", u))
    assert "evaluations by step: 2, 2, 1, 1" in str(describe(network, "ab3", u))
    assert "evaluations" not in str(describe(network, "lm", u))


def test_the_report_says_what_stayed_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    stepnet.convert(small("mobilenet_v2"), "lm", IMAGE, verbose=True)
    told = capsys.readouterr().out
    assert "features.8 … features.10: 3 steps of InvertedResidual" in told
    assert "9 of 10 residual blocks converted" in told
    assert "features.3 is left: no other block of its shape" in told
    assert "features.0 stays: changes the shape: (1, 3, 32, 32) to (1, 32, 16, 16)" in told


def test_training_reaches_k_and_every_parameter_is_used() -> None:
    converted = stepnet.convert(resnet18(), "lm", IMAGE).train()
    converted(torch.randn(2, 3, 32, 32)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in converted.parameters())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scheme": "lmm"}, "unknown scheme 'lmm'"),
        ({"scheme": "backward_euler"}, "makes no network"),
        ({"scheme": "coupled"}, "pair"),
        ({"init": "zero"}, "init = 'zero': expected 'paper' or 'identity' or a number"),
        ({"init": float("nan")}, "init = nan: expected 'paper' or 'identity' or a finite number"),
        ({"scheme": "heun", "init": "identity"}, "no trainable k"),
        ({"blocks": "Bottleneck"}, "matches no module"),
        ({"blocks": 3}, "blocks = 3: expected a str or a subclass of Module"),
        ({"blocks": [nn.Linear(2, 2)]}, "blocks = .*: expected a str or a subclass of Module"),
        ({"blocks": "conv1"}, "looked for 2 or more of the named blocks"),
        ({"example": torch.randn(1, 5, 32, 32)}, r"cannot run on the example \(\[1, 5, 32, 32\]\)"),
        ({"example": "a string"}, "example is a str"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(stepnet.UserError, match=message) as caught:
        stepnet.convert(resnet18(), **{"example": IMAGE, **arguments})
    assert "\n" not in str(caught.value)


def test_networks_without_a_residual_stage_are_refused() -> None:
    with pytest.raises(
        stepnet.UserError, match=r"VGG has no residual stage: looked for 2 or more residual .*stepnet.Residual"
    ):
        stepnet.convert(models.vgg11(num_classes=2, init_weights=False), "lm", IMAGE)
    with pytest.raises(stepnet.UserError, match="already converted"):
        stepnet.convert(stepnet.convert(resnet18(), "lm", IMAGE), "lm", IMAGE)
    with pytest.raises(stepnet.UserError, match=r"stepnet's own stages: build it with create_model"):
        stepnet.convert(stepnet.create_model("resnet20"))
    with torch.device("meta"):
        polynet = stepnet.create_model("very_deep_polynet", a=1, b=1, c=1)
    with pytest.raises(stepnet.UserError, match=r"VeryDeepPolyNet .* own stages: it takes no scheme but its own$"):
        stepnet.convert(polynet)
    with pytest.raises(stepnet.UserError, match="expected a Module"):
        stepnet.convert("resnet18")  # type: ignore[type-var]


def layer() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh())


class Inline(nn.Module):
    """Residuals that no module is."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in range(3))

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        for f in self.layers:
            u = u + f(u)
        return u


def test_blocks_are_asked_for_only_where_naming_them_helps() -> None:
    """A chain of modules can be named. The modules of inline residuals are no chain, named or not."""
    u = torch.randn(2, 4)
    plain = nn.Sequential(layer(), layer(), layer())
    with pytest.raises(stepnet.UserError, match=r"name blocks yourself with blocks=$"):
        stepnet.convert(plain, "lm", u)
    assert stepnet.convert(plain, "lm", u, blocks="Sequential").step_conversion.steps == 3
    with pytest.raises(
        stepnet.UserError, match=r"stepnet\.Residual\(\)\(u, f\), or as a module that returns u \+ f\(u\)$"
    ):
        stepnet.convert(Inline(), "lm", u)
    with pytest.raises(stepnet.UserError, match="no residual stage"):
        stepnet.convert(Inline(), "lm", u, blocks="layers.*")


class WithDropout(nn.Module):
    """`u + dropout(f(u))`."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.dropout = layer(), nn.Dropout(0.3)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return u + self.dropout(self.f(u))


@pytest.mark.parametrize(("between", "stages"), [(nn.Dropout(0.2), 2), (nn.Dropout(0.2, True), 2), (nn.Dropout(0), 1)])
def test_dropout_between_blocks_ends_a_stage(between: nn.Module, stages: int) -> None:
    """In evaluation it hands on the tensor that it was given; in training the next block would have no past."""
    network = nn.Sequential(WithDropout(), WithDropout(), between, WithDropout(), WithDropout())
    u = torch.randn(2, 4)
    converted = stepnet.convert(network, "lm", u, init="identity")
    assert len(converted.step_conversion.stages) == stages
    assert torch.equal(converted.eval()(u), network.eval()(u))
    outputs = []
    for model in (network.train(), converted.train()):
        torch.manual_seed(3)
        outputs.append(model(u))
    assert torch.equal(*outputs)


def test_the_network_is_left_as_it_was_by_the_search() -> None:
    network = resnet18().train()
    network.layer1.eval()
    before, state = copy.deepcopy(network.state_dict()), torch.random.get_rng_state()
    describe(network, example=IMAGE)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert network.training and not network.layer1.training
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not any(module._forward_hooks for module in network.modules())


def test_a_network_that_cannot_be_copied_is_told() -> None:
    network = nn.Sequential(*(Residual(4) for _ in range(3)))
    network[1].cache = network[1].linear.weight * 2  # what a forward with gradients may leave
    with pytest.raises(stepnet.UserError, match="Sequential cannot be copied"):
        stepnet.convert(network, "lm", torch.randn(1, 4))


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return u + torch.tanh(self.linear(u))


class InPlace(Residual):
    def forward(self, u: torch.Tensor) -> torch.Tensor:
        u += torch.tanh(self.linear(u))
        return u


def test_k_zero_and_k_set_differ() -> None:
    converted = stepnet.convert(resnet18(), "lm", IMAGE, init="identity")
    plain = run(converted, IMAGE)[0]
    set_k(converted, -0.5)
    assert not torch.equal(run(converted, IMAGE)[0], plain)


def test_a_converted_network_tells_its_trajectory_and_so_does_a_copy() -> None:
    network = stepnet.convert(resnet18().double(), "lm", IMAGE.double(), init=-0.5)
    for model in (network, copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        with torch.no_grad():
            stages = model.trajectory(IMAGE.double())
        assert [len(states) for states in stages] == [3, 3, 3, 3]
        for layer, (u0, u1, u2) in zip((model.layer1, model.layer2, model.layer3, model.layer4), stages, strict=True):
            block = layer[1]
            f = block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(u1)))))
            torch.testing.assert_close(u2, torch.relu(1.5 * u1 - 0.5 * u0 + f))
    with pytest.raises(AttributeError):
        stepnet.revert(network).trajectory(IMAGE)


def test_the_trajectory_of_blocks_taken_whole() -> None:
    network = stepnet.convert(small("vit").double().eval(), "lm", IMAGE.double(), init=0.25)
    with torch.no_grad():
        (states,) = network.trajectory(IMAGE.double())
    original = stepnet.revert(network)
    with torch.no_grad():
        torch.testing.assert_close(states[2], original.encoder.layers[1](states[1]) + 0.25 * (states[0] - states[1]))


def test_a_bound_keeps_k_inside_and_reverts() -> None:
    network = resnet18()
    bounded = stepnet.convert(network, "lm", IMAGE, init="identity", k_bound="stable")
    assert torch.equal(bounded(IMAGE), network(IMAGE))
    free = [p for name, p in bounded.named_parameters() if name.endswith("step_k_free")]
    with torch.no_grad():
        for p in free:
            p.fill_(-50.0)
    found = stepnet.coefficients(bounded)
    assert len(found) == len(free) and all(-1 < k < -0.999 for k in found.values())
    bounded(IMAGE).sum().backward()
    assert set(stepnet.revert(bounded).state_dict()) == set(network.state_dict())


def test_a_number_for_k_is_rounded_to_the_network_s_own_precision() -> None:
    converted = stepnet.convert(resnet18().double(), "lm", IMAGE.double(), init=-0.3)
    assert set(stepnet.coefficients(converted).values()) == {-0.3}
