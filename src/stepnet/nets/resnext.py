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
from stepnet.nets.resnet import IMAGENET_DEPTHS, register_with_lm
from stepnet.schemes import Scheme

WIDTHS = (256, 512, 1024, 2048)


@checked
def resnext(
    blocks: tuple[Count, ...],
    cardinality: Count = 8,
    group_width: Count = 64,
    pre_activation: bool = False,
    scheme: str | Scheme = "euler",
    shortcut: Shortcut = "projection",
    **options: Unpack[ResidualOptions],
) -> ResidualNetwork:
    """A ResNeXt with so many `blocks` in each stage: three stages for CIFAR, four for ImageNet.

    A block has `cardinality` groups, of `group_width` channels in the first stage.
    """

    def convolutions(inputs: int, outputs: int, stride: int) -> list[nn.Conv2d]:
        width = cardinality * group_width * outputs // WIDTHS[0]
        return bottleneck(inputs, outputs, stride, width, cardinality)

    backbone = Backbone(
        convolutions,
        WIDTHS[: len(blocks)],
        blocks,
        stem_width=64,
        pre_activation=pre_activation,
        shortcut=shortcut,
        project_past=True,
        large_images=len(blocks) == len(WIDTHS),
    )
    return ResidualNetwork(backbone, scheme, **options)


for _cardinality in (8, 16):
    register_with_lm(
        f"resnext29_{_cardinality}x64d", "resnext", partial(resnext, (3, 3, 3), _cardinality), num_classes=100
    )
for _depth in (50, 101):
    _build = partial(resnext, IMAGENET_DEPTHS[_depth], cardinality=32, group_width=4)
    register_with_lm(f"resnext{_depth}_32x4d", "resnext", _build, num_classes=1000, image_size=224)
