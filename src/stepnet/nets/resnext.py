"""ResNeXt: forward Euler with grouped bottlenecks (Xie et al. 2017). LM-ResNeXt: the same, marched by LM.

29 layers for CIFAR: three stages of three bottlenecks with 256, 512 and 1024 channels. "8x64d" is a 3x3 convolution in
8 groups of 64 channels in the first stage; the groups widen with the stages. Shortcuts are projections. LM-ResNeXt's
past state crosses a stage change by a 1x1 convolution of its own: that is the 0.66M by which it exceeds ResNeXt.
50 and 101 layers for ImageNet: the stages of ResNet, 32 groups of 4 channels in the first.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

from torch import nn

from stepnet.errors import check_count
from stepnet.nets.blocks import Shortcut, bottleneck
from stepnet.nets.model_registry import register_model
from stepnet.nets.options import ResidualOptions
from stepnet.nets.residual import Backbone, Convolutions, ResidualNetwork
from stepnet.nets.resnet import blocks_per_stage, imagenet_depths
from stepnet.schemes import Scheme

WIDTHS = (256, 512, 1024, 2048)


def grouped_bottleneck(cardinality: int, group_width: int) -> Convolutions:
    """The block with `cardinality` groups of `group_width` channels at the first stage's width."""
    check_count("cardinality", cardinality)
    check_count("group_width", group_width)

    def convolutions(inputs: int, outputs: int, stride: int) -> list[nn.Conv2d]:
        width = cardinality * group_width * outputs // WIDTHS[0]
        return bottleneck(inputs, outputs, stride, width, cardinality)

    return convolutions


def cifar_resnext(
    depth: int = 29,
    cardinality: int = 8,
    group_width: int = 64,
    pre_activation: bool = False,
    scheme: str | Scheme = "euler",
    shortcut: Shortcut = "projection",
    **options: Unpack[ResidualOptions],
) -> ResidualNetwork:
    """A CIFAR ResNeXt of `9n + 2` layers, marched by any scheme."""
    n = blocks_per_stage(depth, 9)
    backbone = Backbone(
        grouped_bottleneck(cardinality, group_width),
        WIDTHS[:3],
        (n, n, n),
        stem_width=64,
        pre_activation=pre_activation,
        shortcut=shortcut,
        project_past=True,
    )
    return ResidualNetwork(backbone, scheme, **options)


def imagenet_resnext(
    depth: int,
    cardinality: int = 32,
    group_width: int = 4,
    pre_activation: bool = False,
    scheme: str | Scheme = "euler",
    shortcut: Shortcut = "projection",
    **options: Unpack[ResidualOptions],
) -> ResidualNetwork:
    """An ImageNet ResNeXt: ResNet's stages with grouped bottlenecks."""
    backbone = Backbone(
        grouped_bottleneck(cardinality, group_width),
        WIDTHS,
        imagenet_depths(depth),
        stem_width=64,
        pre_activation=pre_activation,
        shortcut=shortcut,
        project_past=True,
        large_images=True,
    )
    return ResidualNetwork(backbone, scheme, **options)


def _register(name: str, build: partial[ResidualNetwork], num_classes: int, image_size: int = 32) -> None:
    """The network of Xie et al., the same in pre-activation order, and that marched by LM."""
    pre, lm = partial(build, pre_activation=True), partial(build, pre_activation=True, scheme="lm")
    for known, family, scheme, made in (
        (name, "resnext", "euler", build),
        (f"preact_{name}", "resnext", "euler", pre),
        (f"lm_{name}", "lm_resnext", "lm", lm),
    ):
        register_model(known, family=family, scheme=scheme, image_size=image_size, num_classes=num_classes)(made)


for _cardinality in (8, 16):
    _register(f"resnext29_{_cardinality}x64d", partial(cifar_resnext, 29, _cardinality), num_classes=100)
for _depth in (50, 101):
    _register(f"resnext{_depth}_32x4d", partial(imagenet_resnext, _depth), num_classes=1000, image_size=224)
