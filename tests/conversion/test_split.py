"""Blocks as shortcut, branch and activation: read from their own forward, or stated."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.conversion.agreement import check_agreement
from torch import Tensor, nn

import stepnet
from stepnet import UserError
from stepnet.conversion import describe, split, split_block
from stepnet.conversion.forward_graph import read_split
from stepnet.conversion.step import ConvertedStep
from stepnet.extras import import_extra

resnet = import_extra("torchvision.models").resnet


@pytest.mark.parametrize("projects", [False, True])
def test_the_parts_add_up_to_the_block(projects: bool) -> None:
    torch.manual_seed(0)
    shortcut = torch.nn.Conv2d(8, 8, 1, bias=False) if projects else None
    block = resnet.BasicBlock(8, 8, downsample=shortcut).double().eval()
    found, u = read_split(block), torch.randn(2, 8, 6, 6, dtype=torch.float64)
    assert found is not None and found.projects is projects
    assert pickle.loads(pickle.dumps(found)) == found
    f = block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(u)))))
    carried = u if shortcut is None else shortcut(u)
    for got, expected in zip(found.terms(block, u), (carried, f), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    assert torch.equal(found.activation(block, carried + f), torch.relu(carried + f))


@pytest.mark.parametrize("scheme", ["euler", "lm", "ab2", "dense"])
def test_a_plain_step_gives_the_bits_of_one_under_gates(scheme: str) -> None:
    """Without gates, a cost or a memory mode a split block takes a short way: see `Role.plain`."""
    torch.manual_seed(0)
    project = nn.Conv2d(4, 8, 1, 2, bias=False)
    blocks = resnet.BasicBlock(4, 8, 2, project), resnet.BasicBlock(8, 8), resnet.BasicBlock(8, 8)
    u = torch.randn(2, 4, 6, 6)
    network = stepnet.convert(nn.Sequential(*blocks), scheme, u).train()
    steps = [block for block in network if isinstance(block, ConvertedStep)]
    assert len(steps) >= 2 and all(step.step_role.plain for step in steps)
    with torch.no_grad():
        for name, p in network.named_parameters():
            if "step_" in name:
                p.add_(-0.3)
    found = []
    for options in ({}, {"noise": [1] * len(steps)}):
        network.zero_grad()
        output = network(u, **options)
        output.square().sum().backward()
        found.append([output, *(p.grad for p in network.parameters())])
    assert all(map(torch.equal, *found))


def test_a_converted_lm_step_makes_few_calls() -> None:
    """The calls of ours, recorded code included; a step asks nothing that is known when it is made."""
    u = torch.randn(2, 4, 6, 6)
    network = stepnet.convert(nn.Sequential(*(resnet.BasicBlock(4, 4) for _ in range(5))), "lm", u).eval()
    calls: Counter[str] = Counter()

    def count(frame: Any, event: str, argument: object) -> None:
        if event == "call" and ("stepnet" in frame.f_code.co_filename or "eval_with_key" in frame.f_code.co_filename):
            calls[frame.f_code.co_name] += 1

    with torch.inference_mode():
        network(u)
        sys.setprofile(count)
        try:
            network(u)
        finally:
            sys.setprofile(None)
    assert calls["_plain_step"] == 5 and sum(calls.values()) <= 5 * 20, calls


def blocks(name: str) -> list[nn.Module]:
    """A block of that class which changes the shape, and two that keep it."""
    models = import_extra("timm.models")
    video = import_extra("torchvision.models.video.resnet")
    shapes = [(8, 16, 2), (16, 16, 1), (16, 16, 1)]

    def norm(width: int, **options: Any) -> nn.Module:
        return import_extra("timm.layers").BatchNormAct2d(width, **options)

    def downsample(a: int, b: int, stride: int, conv: type[nn.Module] = nn.Conv2d) -> nn.Module | None:
        return None if stride == 1 else conv(a, b, 1, stride, bias=False)

    def preactivation(block: type[nn.Module], a: int, b: int, stride: int) -> nn.Module:
        project = models.resnetv2.DownsampleConv if stride > 1 else None
        return block(a, b, stride=stride, norm_layer=norm, proj_layer=project)

    build = {
        "PreActBasic": lambda a, b, s: preactivation(models.resnetv2.PreActBasic, a, b, s),
        "PreActBottleneck": lambda a, b, s: preactivation(models.resnetv2.PreActBottleneck, a, b, s),
        "SEResNetBlock": lambda a, b, s: models.senet.SEResNetBlock(a, b, 1, 4, s, downsample(a, b, s)),
        "SelectiveKernelBasic": lambda a, b, s: models.sknet.SelectiveKernelBasic(a, b, s, downsample(a, b, s)),
        "video.BasicBlock": lambda a, b, s: video.BasicBlock(
            a, b, video.Conv2Plus1D, s, downsample(a, b, s, nn.Conv3d)
        ),
    }[name]
    return [build(*shape) for shape in shapes]


@pytest.mark.parametrize(
    "name", ["PreActBasic", "PreActBottleneck", "SEResNetBlock", "SelectiveKernelBasic", "video.BasicBlock"]
)
def test_blocks_of_libraries_are_split_and_their_transitions_are_steps(name: str) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(*blocks(name))
    conversion = check_agreement(network, torch.randn(2, 8, *([4] if "video" in name else []), 8, 8))
    assert (conversion.steps, conversion.coefficients, conversion.found) == (3, 2, 3)
    assert "0" in conversion.stages[0].split


def test_preactivation_networks_have_as_many_k_as_ours() -> None:
    """One for each block of a stage but its first: 2 + 3 + 5 + 2 in a ResNet-50."""
    timm = import_extra("timm")
    with torch.device("meta"):
        network, x = timm.create_model("resnetv2_50"), torch.empty(1, 3, 64, 64)
    conversion = describe(network, "lm", x)
    assert (conversion.coefficients, conversion.converted, conversion.found, conversion.left) == (12, 16, 16, {})


class PreActivationBlock(nn.Module):
    """As in the CIFAR networks that people share; the shortcut shares the first batch norm and ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int, option: str) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(x))
        shortcut = self.shortcut(out) if hasattr(self, "shortcut") else x
        out = self.conv1(out)
        out = self.conv2(F.relu(self.bn2(out)))
        out += shortcut
        return out


def test_a_shared_preactivation_is_evaluated_once() -> None:
    """All 6 k of a PreActResNet-20; in training too the outputs and statistics at k = 0 are the network's own."""
    network, x = lively(CifarResNet(PreActivationBlock)), torch.randn(2, 3, 16, 16, dtype=torch.float64)
    converted = stepnet.convert(network, "lm", x, init=-0.25)
    assert len(stepnet.coefficients(converted)) == 6

    u = F.relu(network.bn1(network.conv1(x)))  # the same by hand
    for layer in (network.layer1, network.layer2, network.layer3):
        past = None
        for place, block in enumerate(layer):
            activated = F.relu(block.bn1(u))
            f = block.conv2(F.relu(block.bn2(block.conv1(activated))))
            changes = place == 0 and layer is not network.layer1
            carried = block.shortcut(activated) if changes else u
            term = 0 if past is None else -0.25 * (past - u)
            past, u = carried, carried + f + term
    torch.testing.assert_close(converted(x), u.mean((2, 3)), rtol=0, atol=1e-12)

    plain = stepnet.convert(network, "lm", x, init="identity").train()
    assert torch.equal(plain(x), network.train()(x))
    state = plain.state_dict()
    assert all(torch.equal(state[name], value) for name, value in network.state_dict().items())


class TwoSums(nn.Module):
    """As in a transformer: the term of the last sum is a state inside the block, not a projection of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.first, self.second = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.project(x) + self.first(torch.tanh(x))
        return x + self.second(torch.tanh(x))


def test_a_state_inside_a_block_is_no_projected_input() -> None:
    assert read_split(TwoSums()) is None


class Lambda(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, u: Tensor) -> Tensor:
        return self.f(u)


class CifarBlock(nn.Module):
    """As in most CIFAR ResNets that people share: ReLU by function, shortcut by a lambda, a module or nothing."""

    def __init__(self, inputs: int, outputs: int, stride: int, option: str) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Sequential()
        if stride > 1 and option == "A":
            more = (outputs - inputs) // 2
            self.shortcut = Lambda(lambda u: F.pad(u[:, :, ::2, ::2], (0, 0, 0, 0, more, more)))
        elif stride > 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class CifarResNet(nn.Module):
    def __init__(self, block: type[nn.Module] = CifarBlock, option: str = "A") -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4)
        shapes = [(4, 4, 1), (4, 8, 2), (8, 16, 2)]
        for i, (a, b, stride) in enumerate(shapes):
            blocks = [block(a, b, stride, option), block(b, b, 1, option), block(b, b, 1, option)]
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))

    def forward(self, x: Tensor) -> Tensor:
        u = F.relu(self.bn1(self.conv1(x)))
        return self.layer3(self.layer2(self.layer1(u))).mean((2, 3))


def lively(network: nn.Module) -> nn.Module:
    """In float64, with statistics that are not those of a new network."""
    torch.manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
    return network.double().eval()


@pytest.mark.parametrize("option", ["A", "B"])
def test_the_common_cifar_block_is_split(option: str) -> None:
    """As many k as `lm_resnet20` has, each acting before the ReLU, the projected input the past of the next step."""
    network, x = lively(CifarResNet(option=option)), torch.randn(2, 3, 16, 16, dtype=torch.float64)
    assert torch.equal(stepnet.convert(network, "lm", x, init="identity")(x), network(x))
    converted = stepnet.convert(network, "lm", x, init=-0.25)
    assert len(stepnet.coefficients(converted)) == 6
    assert "split: the scheme acts before the activation" in str(describe(converted))

    u = F.relu(network.bn1(network.conv1(x)))  # the same by hand
    for layer in (network.layer1, network.layer2, network.layer3):
        past = None
        for place, block in enumerate(layer):
            f = block.bn2(block.conv2(F.relu(block.bn1(block.conv1(u)))))
            carried = block.shortcut(u)
            term = 0 if past is None else -0.25 * (past - u)
            past, u = (carried if place == 0 and layer is not network.layer1 else u), F.relu(carried + f + term)
    torch.testing.assert_close(converted(x), u.mean((2, 3)), rtol=0, atol=1e-12)


class Dropping(CifarBlock):
    """Does more in training, by a number that may change or by another course of its forward."""

    by_number = True

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        if self.by_number:
            out = F.dropout(out, 0.5, self.training)
        elif self.training:
            out = out * torch.bernoulli(torch.ones_like(out) / 2)
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class Masking(Dropping):
    by_number = False


@pytest.mark.parametrize("block", [Dropping, Masking])
def test_a_block_that_does_more_in_training_is_taken_whole_and_told(block: type[nn.Module]) -> None:
    network, x = lively(CifarResNet(block)), torch.randn(2, 3, 16, 16, dtype=torch.float64)
    told = str(describe(network, "lm", x))
    assert "taken whole: the scheme acts after the relu, and a change of shape hands over no past" in told
    assert describe(network, "lm", x).coefficients == 4


class Scaled(CifarBlock):
    """A number that the network's owner may change later."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.scale = 0.5

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(self.scale * out + self.shortcut(x))


class Branching(CifarBlock):
    """What torch.fx cannot record: it looks at values."""

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x) if len(x) else out)


@pytest.mark.parametrize("block", [Scaled, Branching])
def test_a_forward_that_may_do_something_else_later_is_not_read(block: type[nn.Module]) -> None:
    network, x = lively(CifarResNet(block)), torch.randn(2, 3, 16, 16, dtype=torch.float64)
    converted = stepnet.convert(network, "lm", x, init="identity")
    assert not any(stage.split for stage in describe(converted).stages)
    for each in (*network.modules(), *converted.modules()):
        if isinstance(each, Scaled):
            each.scale = 2.0
    assert torch.equal(converted(x), network(x))


def test_a_block_that_cannot_be_read_is_stated_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "STATED", {})
    network, x = lively(CifarResNet(Branching)), torch.randn(2, 3, 16, 16, dtype=torch.float64)
    assert describe(network, "lm", x).coefficients == 4
    split_block(Branching, branch="conv1 bn1 relu() conv2 bn2", shortcut="shortcut", activation="relu()")
    assert describe(network, "lm", x).coefficients == 6
    assert torch.equal(stepnet.convert(network, "lm", x, init="identity")(x), network(x))
    split_block(Branching, branch="conv1 bn1 relu() conv2 bn2", shortcut="shortcut", activation="elu()")  # not so
    told = str(describe(network, "lm", x))
    assert "taken whole: the scheme acts after the relu" in told and "the split that was stated gives something" in told
    with pytest.raises(UserError, match="has no such function"):
        split_block(Branching, branch="conv1 rleu() conv2", shortcut="shortcut")
