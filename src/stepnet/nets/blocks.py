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
from torch.fx import Tracer

from stepnet.errors import UserError
from stepnet.schemes import is_traced


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


class BatchNorm(nn.BatchNorm2d):
    """Batch normalisation with one set of running statistics for each evaluation within a step."""

    def __init__(self, channels: int, evaluations: int) -> None:
        super().__init__(channels)
        self.evaluations = evaluations
        for i in range(1, evaluations):
            self.register_buffer(f"running_mean_{i}", torch.zeros(channels))
            self.register_buffer(f"running_var_{i}", torch.ones(channels))

    def forward(self, input: Tensor) -> Tensor:
        """Normalise with the statistics of evaluation 0; torch.fx records it as one node, as for torch's class."""
        if is_traced(input):
            tracer = cast(Tracer, input.tracer)
            return cast(Tensor, tracer.create_proxy("call_module", tracer.path_of_module(self), (input,), {}))
        return super().forward(input)

    def at(self, u: Tensor, i: int) -> Tensor:
        """Normalise with the statistics of evaluation `i >= 1`, which comes after evaluation 0 of the same batch."""
        momentum = self.momentum
        if momentum is None:  # torch's cumulative mean, over the batches that evaluation 0 has counted
            momentum = 1.0 / float(cast(Tensor, self.num_batches_tracked)) if self.training else 0.0
        mean, var = self._statistics(i)
        return F.batch_norm(u, mean, var, self.weight, self.bias, self.training, momentum, self.eps)

    def reset_running_stats(self) -> None:
        """Reset the statistics of all evaluations."""
        super().reset_running_stats()
        for i in range(1, getattr(self, "evaluations", 1)):  # torch calls this in its constructor, too
            mean, var = self._statistics(i)
            mean.zero_()
            var.fill_(1)

    def _statistics(self, i: int) -> tuple[Tensor, Tensor]:
        return self.get_buffer(f"running_mean_{i}"), self.get_buffer(f"running_var_{i}")


def norm(channels: int, evaluations: int = 1) -> nn.BatchNorm2d:
    """Return a batch normalisation; torch's class if one set of statistics is enough."""
    return BatchNorm(channels, evaluations) if evaluations > 1 else nn.BatchNorm2d(channels)


def normalise(layer: nn.Module, u: Tensor, i: int) -> Tensor:
    """`layer(u)` with the statistics of evaluation `i`."""
    if i == 0:
        normalised: Tensor = layer(u)
        return normalised
    if not isinstance(layer, BatchNorm):
        raise UserError(
            f"{type(layer).__name__} has one set of statistics, and evaluation {i + 1} of a block in a step needs "
            "another: leave out sync_bn, or take a scheme that evaluates once (euler, lm, ab2)"
        )
    return layer.at(u, i)


class PreActivation(nn.Module):
    """`f` = (bn, relu, conv) repeated: the block of the paper's CIFAR networks (He et al. 2016)."""

    def __init__(self, convs: Sequence[nn.Conv2d], evaluations: int = 1) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm(c.in_channels, evaluations) for c in convs)
        self.convs = nn.ModuleList(convs)

    def forward(self, u: Tensor, i: int = 0, activated: Tensor | None = None) -> Tensor:
        """`f(u)`; its first (bn, relu) may have been applied already, for a shortcut that shares it."""
        for layer, convolve in zip(self.norms._modules.values(), self.convs._modules.values(), strict=True):
            if activated is None:
                activated = torch.relu(layer(u) if i == 0 else normalise(layer, u, i))
            u, activated = convolve(activated), None
        return u

    def activated(self, u: Tensor, i: int = 0) -> Tensor:
        """The first (bn, relu)."""
        return F.relu(normalise(self.norms[0], u, i))


class PostActivation(nn.Module):
    """`f` = (conv, bn, relu) repeated, without the last relu, which comes after the step (He et al. 2015)."""

    def __init__(self, convs: Sequence[nn.Conv2d], evaluations: int = 1) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(norm(c.out_channels, evaluations) for c in convs)

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        last = len(self.convs) - 1
        for depth, (convolve, layer) in enumerate(zip(self.convs, self.norms, strict=True)):
            u = normalise(layer, convolve(u), i)
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
