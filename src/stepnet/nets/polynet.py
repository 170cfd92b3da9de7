"""PolyNet (Zhang et al. 2017): its residual units on CIFAR backbones, `F = dt f` a pre-activation block.

    poly-2   I + F + F²          neumann2
    poly-3   I + F + F² + F³     neumann3
    mpoly-2  I + F + G F         neumann2, whose second evaluation has separate weights
    2-way    I + F + G           euler, whose right-hand side is the sum of two branches

A unit is a truncated backward Euler step where F is shared; 2-way is forward Euler with a wider block. Stage changes
are not part of the equation and stay plain residual blocks.

Very Deep PolyNet for ImageNet: Inception residual units composed as truncated implicit steps. Stage A has 10 units of
2-way, stage B 10 pairs of poly-3 and 2-way, stage C 5 such pairs. The right-hand sides are the Inception-A, -B and -C
blocks of Inception-ResNet-v2; a unit's residual scaling, which falls linearly from 1 to 0.7 over the 40 units, is its
step size dt. In poly-3 the three evaluations of F share the convolutions of its paths, while the norms and the last
convolution are separate, as in the weights that its authors released (95,366,600 parameters). Stem and reductions are
padded, unlike the original's, so that images of 32 pixels or more are accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Unpack, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.nets.blocks import Sum, UnsharedWeights, basic, initialise
from stepnet.nets.model_registry import register_model
from stepnet.nets.network import Network
from stepnet.nets.options import ResidualOptions
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.nets.resnet import blocks_per_stage
from stepnet.nets.stage import Stage, scheme_of_family
from stepnet.schemes import Scheme, get_scheme

Unit = Literal["poly2", "poly3", "mpoly2", "two_way"]
SCHEMES: dict[Unit, str] = {"poly2": "neumann2", "poly3": "neumann3", "mpoly2": "neumann2", "two_way": "euler"}


@dataclass(frozen=True)
class PolyBackbone(Backbone):
    """A backbone whose blocks hold as many `f` as the unit has letters."""

    unit: Unit = "poly2"

    def make_block(self, inputs: int, outputs: int, stride: int, evaluations: int = 1) -> nn.Module:
        plain = super().make_block
        if inputs == outputs and self.unit == "mpoly2":
            return UnsharedWeights([plain(inputs, outputs, stride) for _ in range(evaluations)])
        if inputs == outputs and self.unit == "two_way":
            return Sum([plain(inputs, outputs, stride, evaluations) for _ in range(2)])
        return plain(inputs, outputs, stride, evaluations)


def cifar_polynet(
    depth: int, unit: Unit, scheme: str | Scheme | None = None, **options: Unpack[ResidualOptions]
) -> ResidualNetwork:
    """A pre-activation CIFAR ResNet of `6n + 2` layers with PolyNet's units in place of residual blocks."""
    n = blocks_per_stage(depth, 6)
    backbone = PolyBackbone(basic, (16, 32, 64), (n, n, n), stem_width=16, pre_activation=True, unit=unit)
    if unit == "two_way":  # the unit is in the block: any scheme is possible
        return ResidualNetwork(backbone, scheme or SCHEMES[unit], **options)
    return ResidualNetwork(backbone, scheme_of_family(scheme, SCHEMES[unit], f"PolyNet's {unit}"), **options)


for _unit, _scheme in SCHEMES.items():
    for _depth in (20, 32, 44, 56):
        register_model(f"{_unit}_resnet{_depth}", family="polynet", scheme=_scheme)(
            partial(cifar_polynet, _depth, _unit)
        )
        register_model(f"lm_{_unit}_resnet{_depth}", family="lm_polynet", scheme=get_scheme("lm", base=_scheme).name)(
            partial(cifar_polynet, _depth, _unit, scheme="lm")
        )


Size = int | tuple[int, int]
LAST_STEP = 0.7


class ConvNorm(nn.Module):
    """conv, bn and, except at the end of a block, relu. Each evaluation within a step has a separate norm."""

    def __init__(
        self, inputs: int, outputs: int, size: Size = 1, stride: int = 1, evaluations: int = 1, relu: bool = True
    ) -> None:
        super().__init__()
        padding = size // 2 if isinstance(size, int) else (size[0] // 2, size[1] // 2)
        self.conv = nn.Conv2d(inputs, outputs, size, stride=stride, padding=padding, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(evaluations))
        self.relu = relu

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        u = self.norms[i](self.conv(u))
        return F.relu(u) if self.relu else u


Path = Sequence[tuple[int, Size]]  # (channels, kernel size) of each convolution
INCEPTION_A: list[Path] = [[(32, 1), (48, 3), (64, 3)], [(32, 1), (32, 3)], [(32, 1)]]
INCEPTION_B: list[Path] = [[(128, 1), (160, (1, 7)), (192, (7, 1))], [(192, 1)]]
INCEPTION_C: list[Path] = [[(192, 1), (224, (1, 3)), (256, (3, 1))], [(192, 1)]]


class Inception(nn.Module):
    """`f`: relu, parallel chains of convolutions, concatenated and projected back by a 1x1 convolution.

    States are non-negative, so that the first ReLU has an effect only if poly-3 evaluates `f` at `F(u)`.
    """

    def __init__(self, channels: int, paths: Sequence[Path], evaluations: int = 1) -> None:
        super().__init__()
        self.paths = nn.ModuleList()
        for path in paths:
            widths = [channels, *(width for width, _ in path)]
            self.paths.append(
                nn.ModuleList(
                    ConvNorm(inputs, width, size, evaluations=evaluations)
                    for inputs, (width, size) in zip(widths, path, strict=False)
                )
            )
        joined = sum(path[-1][0] for path in paths)
        self.close = UnsharedWeights([ConvNorm(joined, channels, relu=False) for _ in range(evaluations)])

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        u = F.relu(u)
        ends = []
        for path in self.paths:
            v = u
            for layer in cast(nn.ModuleList, path):
                v = layer(v, i)
            ends.append(v)
        return cast(Tensor, self.close(torch.cat(ends, 1), i))


class Concatenate(nn.Module):
    """Paths side by side, their channels concatenated."""

    def __init__(self, *paths: nn.Module) -> None:
        super().__init__()
        self.paths = nn.ModuleList(paths)

    def forward(self, u: Tensor) -> Tensor:
        return torch.cat([path(u) for path in self.paths], 1)


class VeryDeepPolyNet(Network):
    """Stem, three stages of PolyInception units with reductions between them, head.

    Every unit has its method and step size, and is a stage of one step without a past, so that no `scheme` can be
    chosen, not even LM's carry.
    """

    reduction = 32

    def __init__(
        self,
        num_classes: int = 1000,
        in_channels: int = 3,
        a: int = 10,
        b: int = 10,
        c: int = 5,
        scheme: str | Scheme | None = None,
    ) -> None:
        super().__init__(num_classes, in_channels)
        if scheme is not None:
            raise UserError(
                f"scheme {get_scheme(scheme).name!r} on Very Deep PolyNet: every unit has its method and step size, "
                "and is a stage of one step without a past; take 'lm_poly2_resnet20'"
            )
        self.num_features = 2048
        total = a + 2 * b + 2 * c
        steps = iter([1 - (1 - LAST_STEP) * n / max(total - 1, 1) for n in range(total)])
        two_way, poly3 = "euler", "neumann3"

        def units(channels: int, paths: Sequence[Path], schemes: Sequence[str]) -> nn.Sequential:
            return nn.Sequential(*(inception_unit(channels, paths, scheme, next(steps)) for scheme in schemes))

        self.stem = _stem(in_channels)
        self.stage_a = units(384, INCEPTION_A, [two_way] * a)
        self.reduction_a = _reduction_a()
        self.stage_b = units(1152, INCEPTION_B, [poly3, two_way] * b)
        self.reduction_b = _reduction_b()
        self.stage_c = units(2048, INCEPTION_C, [poly3, two_way] * c)
        self.reset_classifier(num_classes)
        initialise(self)

    def forward_features(self, x: Tensor) -> Tensor:
        self.check_input(x)
        x = self.reduction_a(self.stage_a(self.stem(x)))
        return cast(Tensor, self.stage_c(self.reduction_b(self.stage_b(x))))


def inception_unit(channels: int, paths: Sequence[Path], scheme: str, dt: float) -> Stage:
    """One PolyInception unit: a step of `neumann3` (poly-3), or of `euler` with two branches (2-way)."""
    method = get_scheme(scheme)
    if scheme == "euler":
        block: nn.Module = Sum([Inception(channels, paths) for _ in range(2)])
    else:
        block = Inception(channels, paths, evaluations=method.stages)
    return Stage(method, [block], dt=dt, after=torch.relu)


def _stem(in_channels: int) -> nn.Sequential:
    return nn.Sequential(
        ConvNorm(in_channels, 32, 3, stride=2),
        ConvNorm(32, 32, 3),
        ConvNorm(32, 64, 3),
        Concatenate(_pool(), ConvNorm(64, 96, 3, stride=2)),
        Concatenate(
            nn.Sequential(ConvNorm(160, 64), ConvNorm(64, 96, 3)),
            nn.Sequential(ConvNorm(160, 64), ConvNorm(64, 64, (7, 1)), ConvNorm(64, 64, (1, 7)), ConvNorm(64, 96, 3)),
        ),
        Concatenate(_pool(), ConvNorm(192, 192, 3, stride=2)),
    )


def _reduction_a() -> nn.Module:
    return Concatenate(
        nn.Sequential(ConvNorm(384, 256), ConvNorm(256, 256, 3), ConvNorm(256, 384, 3, stride=2)),
        ConvNorm(384, 384, 3, stride=2),
        _pool(),
    )


def _reduction_b() -> nn.Module:
    return Concatenate(
        nn.Sequential(ConvNorm(1152, 256), ConvNorm(256, 256, 3), ConvNorm(256, 256, 3, stride=2)),
        nn.Sequential(ConvNorm(1152, 256), ConvNorm(256, 256, 3, stride=2)),
        nn.Sequential(ConvNorm(1152, 256), ConvNorm(256, 384, 3, stride=2)),
        _pool(),
    )


def _pool() -> nn.Module:
    return nn.MaxPool2d(3, stride=2, padding=1)


register_model("very_deep_polynet", family="polynet", scheme="neumann3", image_size=331, num_classes=1000)(
    VeryDeepPolyNet
)
