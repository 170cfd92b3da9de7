"""ResNeXt: forward Euler with grouped bottlenecks (Xie et al. 2017). LM-ResNeXt: the same, marched by LM.

29 layers for CIFAR: three stages of three bottlenecks with 256, 512 and 1024 channels. "8x64d" is a 3x3 convolution in
8 groups of 64 channels in the first stage; the groups widen with the stages. Shortcuts are projections. LM-ResNeXt's
past state crosses a stage change by a separate 1x1 convolution: the 0.66M by which it exceeds ResNeXt.
50 and 101 layers for ImageNet: the stages of ResNet, 32 groups of 4 channels in the first.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

from torch import nn

from stepnet.arguments import Count, checked
from stepnet.nets.blocks import Shortcut, bottleneck
from stepnet.nets.options import ResidualOptions
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.nets.resnet import blocks_per_stage, imagenet_depths, register_with_lm
from stepnet.schemes import Scheme

WIDTHS = (256, 512, 1024, 2048)


@checked
def _backbone(
    depths: tuple[int, ...], cardinality: Count, group_width: Count, pre_activation: bool, shortcut: Shortcut
) -> Backbone:
    """Blocks of `cardinality` groups, of `group_width` channels in the first stage; four stages for ImageNet."""

    def convolutions(inputs: int, outputs: int, stride: int) -> list[nn.Conv2d]:
        width = cardinality * group_width * outputs // WIDTHS[0]
        return bottleneck(inputs, outputs, stride, width, cardinality)

    return Backbone(
        convolutions,
        WIDTHS[: len(depths)],
        depths,
        stem_width=64,
        pre_activation=pre_activation,
        shortcut=shortcut,
        project_past=True,
        large_images=len(depths) == len(WIDTHS),
    )


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
    depths = (blocks_per_stage(depth, 9),) * 3
    backbone = _backbone(depths, cardinality, group_width, pre_activation, shortcut)
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
    backbone = _backbone(imagenet_depths(depth), cardinality, group_width, pre_activation, shortcut)
    return ResidualNetwork(backbone, scheme, **options)


for _cardinality in (8, 16):
    register_with_lm(
        f"resnext29_{_cardinality}x64d", "resnext", partial(cifar_resnext, 29, _cardinality), num_classes=100
    )
for _depth in (50, 101):
    register_with_lm(
        f"resnext{_depth}_32x4d", "resnext", partial(imagenet_resnext, _depth), num_classes=1000, image_size=224
    )
