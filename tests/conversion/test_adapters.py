"""Blocks that we know how to split, put together again."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepnet
from stepnet import UserError
from stepnet.conversion import adapters, describe, split_block
from stepnet.conversion.adapters import KNOWN, split_of

resnet = pytest.importorskip("torchvision.models.resnet")


@pytest.mark.parametrize("projects", [False, True])
def test_the_parts_add_up_to_the_block(projects: bool) -> None:
    torch.manual_seed(0)
    shortcut = torch.nn.Conv2d(8, 8, 1, bias=False) if projects else None
    block = resnet.BasicBlock(8, 8, downsample=shortcut).double().eval()
    split, u = split_of(block), torch.randn(2, 8, 6, 6, dtype=torch.float64)
    assert split is not None and split.projects(block) is projects
    f = block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(u)))))
    carried = u if shortcut is None else shortcut(u)
    torch.testing.assert_close(split.branch(block, u), f, rtol=0, atol=1e-12)
    torch.testing.assert_close(split.shortcut(block, u), carried, rtol=0, atol=1e-12)
    assert torch.equal(split.whole(block, u), torch.relu(carried + split.branch(block, u)))


def test_a_subclass_with_a_forward_of_its_own_is_not_known() -> None:
    class Same(resnet.BasicBlock):
        pass

    class Other(resnet.BasicBlock):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    assert split_of(Same(4, 4)) is KNOWN["torchvision.models.resnet.BasicBlock"]
    assert split_of(Other(4, 4)) is None and split_of(torch.nn.Identity()) is None


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
    def forward(self, x: Tensor) -> Tensor:
        out = F.dropout(F.relu(self.bn1(self.conv1(x))), 0.5, self.training)
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


def test_a_block_that_does_more_in_training_is_taken_whole_and_told() -> None:
    network, x = lively(CifarResNet(Dropping)), torch.randn(2, 3, 16, 16, dtype=torch.float64)
    told = str(describe(network, "lm", x))
    assert "taken whole: the scheme acts after the relu, and a change of shape hands over no past" in told
    assert describe(network, "lm", x).coefficients == 4


class Odd(nn.Module):
    """A block whose layers nobody could guess."""

    def __init__(self, inputs: int, outputs: int, stride: int, option: str) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(inputs, outputs, 3, stride, 1), nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.skip = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.elu(self.two(F.elu(self.one(x))) + self.skip(x))


def test_a_block_of_ones_own_is_stated_in_three_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "KNOWN", dict(KNOWN))
    network, x = lively(CifarResNet(Odd)), torch.randn(2, 3, 16, 16, dtype=torch.float64)
    assert describe(network, "lm", x).coefficients == 4
    split_block(Odd, branch="one elu() two", shortcut="skip", activation="elu()")
    assert describe(network, "lm", x).coefficients == 6
    assert torch.equal(stepnet.convert(network, "lm", x, init="identity")(x), network(x))
    split_block(Odd, branch="one elu() two", shortcut="skip", activation="relu()")  # not what the block does
    told = str(describe(network, "lm", x))
    assert "taken whole: the scheme acts after the elu" in told and "the split that was stated gives something" in told
    with pytest.raises(UserError, match="has no such function"):
        split_block(Odd, branch="one rleu() two", shortcut="skip")
