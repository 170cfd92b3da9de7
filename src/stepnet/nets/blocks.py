"""The right-hand sides `f` of the paper's networks: chains of convolutions with normalisation and ReLU.

A block is `f` alone; the sum `u + f(u)` belongs to the scheme. Called as `block(u, i)`, where `i` counts the
evaluations within one step: a scheme that evaluates a block several times meets differently distributed inputs, so
each evaluation keeps its own running statistics, while weights and affine parameters are shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.nets.statistics import Statistics, at_evaluation, separate_statistics


def conv(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution without bias that keeps the image size at stride 1."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, groups=groups, bias=False)


def basic(inputs: int, outputs: int, stride: int = 1) -> list[nn.Conv2d]:
    """He's two-layer block: 3x3, 3x3."""
    return [conv(inputs, outputs, 3, stride), conv(outputs, outputs, 3)]


def bottleneck(
    inputs: int, outputs: int, stride: int = 1, width: int | None = None, groups: int = 1
) -> list[nn.Conv2d]:
    """1x1, 3x3, 1x1 with the inner `width` (default: a quarter of the outputs); ResNeXt groups the 3x3.

    The 3x3 has the stride, as in ResNeXt and torchvision; the number of parameters does not depend on it.
    """
    width = width or outputs // 4
    return [conv(inputs, width, 1), conv(width, width, 3, stride, groups), conv(width, outputs, 1)]


def norm(channels: int, evaluations: int = 1) -> nn.BatchNorm2d:
    """Return a batch normalisation with statistics for each evaluation; torch's class if one set is enough."""
    layer = nn.BatchNorm2d(channels)
    separate_statistics(layer, evaluations)
    return layer


def evaluate_again(block: PreActivation | PostActivation, u: Tensor, i: int) -> Tensor:
    """`f(u)` with the statistics of evaluation `i >= 1`."""
    for layer in block.norms:
        if not isinstance(layer, Statistics):
            raise UserError(
                f"{type(layer).__name__} has one set of statistics, and evaluation {i + 1} of a block in a step needs "
                "another: leave out sync_bn, or take a scheme that evaluates once (euler, lm, ab2)"
            )
    return cast(Tensor, at_evaluation(i, block.forward, u))


class PreActivation(nn.Module):
    """`f` = (bn, relu, conv) repeated: the block of the paper's CIFAR networks (He et al. 2016)."""

    def __init__(self, convs: Sequence[nn.Conv2d], evaluations: int = 1) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm(c.in_channels, evaluations) for c in convs)
        self.convs = nn.ModuleList(convs)

    def forward(self, u: Tensor, i: int = 0, activated: Tensor | None = None) -> Tensor:
        """`f(u)`; its first (bn, relu) may have been applied already, for a shortcut that shares it."""
        if i:
            return evaluate_again(self, u, i)
        for layer, convolve in zip(self.norms._modules.values(), self.convs._modules.values(), strict=True):
            if activated is None:
                activated = torch.relu(layer(u))
            u, activated = convolve(activated), None
        return u

    def activated(self, u: Tensor) -> Tensor:
        """The first (bn, relu)."""
        return F.relu(self.norms[0](u))


class PostActivation(nn.Module):
    """`f` = (conv, bn, relu) repeated, without the last relu, which comes after the step (He et al. 2015)."""

    def __init__(self, convs: Sequence[nn.Conv2d], evaluations: int = 1) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(norm(c.out_channels, evaluations) for c in convs)

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        if i:
            return evaluate_again(self, u, i)
        last = len(self.convs) - 1
        for depth, (convolve, layer) in enumerate(zip(self.convs, self.norms, strict=True)):
            u = layer(convolve(u))
            if depth < last:
                u = F.relu(u)
        return u


class UnsharedWeights(nn.Module):
    """A right-hand side whose evaluations within a step have separate weights: `f_i(u)`."""

    def __init__(self, fs: Sequence[nn.Module]) -> None:
        super().__init__()
        self.fs = nn.ModuleList(fs)
        self.whole = all(getattr(f, "whole", False) for f in fs)  # they return `Difference(B(u), u)`

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        return cast(Tensor, self.fs[i](u))


class Sum(nn.Module):
    """`f(u) = f_1(u) + f_2(u) + …`: branches side by side."""

    def __init__(self, fs: Sequence[nn.Module]) -> None:
        super().__init__()
        self.fs = nn.ModuleList(fs)
        self.branch_weights = ("1",) * len(fs)  # labels of the branches in drawings

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        total: Tensor = self.fs[0](u, i)
        for f in self.fs[1:]:
            total = total + f(u, i)
        return total


class Subsample(nn.Module):
    """The parameter-free shortcut of He et al.: every `stride`-th pixel, new channels filled with zeros."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.extra, self.stride = outputs - inputs, stride

    def forward(self, u: Tensor) -> Tensor:
        return F.pad(u[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra))

    def extra_repr(self) -> str:
        return f"stride={self.stride}, new channels={self.extra}"


# How a state is projected to another shape. "subsample" has no parameters. The others are 1x1 convolutions:
# "projection" is that of He et al., in post-activation nets followed by a norm (2015), in pre-activation nets of the
# block's first (bn, relu), which `SharedTransition` applies (2016); "raw" projects the state itself; "released" is
# (bn, relu, conv) with a separate norm, as in the code that the LM authors released.
Shortcut = Literal["subsample", "projection", "raw", "released"]


def initialise(model: nn.Module) -> None:
    """He's initialisation (2015) for convolutions; norms start as the identity."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
