"""ResNeXt: forward Euler with grouped bottlenecks (Xie et al. 2017). LM-ResNeXt: the same, marched by LM.

29 layers for CIFAR: three stages of three bottlenecks with 256, 512 and 1024 channels. "8x64d" is a 3x3 convolution in
8 groups of 64 channels in the first stage; the groups widen with the stages. Shortcuts are projections. LM-ResNeXt's
past state crosses a stage change by a 1x1 convolution of its own: that is the 0.66M by which it exceeds ResNeXt.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from stepnet.errors import check_count
from stepnet.nets.blocks import bottleneck
from stepnet.nets.registry import register_model
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.nets.resnet import blocks_per_stage

WIDTHS = (256, 512, 1024)


def cifar_resnext(
    depth: int = 29,
    cardinality: int = 8,
    group_width: int = 64,
    pre_activation: bool = False,
    scheme: str = "euler",
    **options: Any,
) -> ResidualNetwork:
    """A CIFAR ResNeXt of `9n + 2` layers with `cardinality` groups of `group_width` channels, marched by any scheme."""
    n = blocks_per_stage(depth, 9)
    check_count("cardinality", cardinality)
    check_count("group_width", group_width)

    def grouped(inputs: int, outputs: int, stride: int) -> list[nn.Conv2d]:
        width = cardinality * group_width * outputs // WIDTHS[0]
        return bottleneck(inputs, outputs, stride, width, cardinality)

    backbone = Backbone(
        grouped,
        WIDTHS,
        (n, n, n),
        stem_width=64,
        pre_activation=pre_activation,
        shortcut="projection",
        project_past=True,
    )
    return ResidualNetwork(backbone, scheme, **options)


for _cardinality in (8, 16):
    _build, _name = partial(cifar_resnext, 29, _cardinality), f"resnext29_{_cardinality}x64d"
    register_model(_name, family="resnext", num_classes=100)(_build)
    register_model(f"preact_{_name}", family="resnext", num_classes=100)(partial(_build, pre_activation=True))
    register_model(f"lm_{_name}", family="lm_resnext", scheme="lm", num_classes=100)(
        partial(_build, pre_activation=True, scheme="lm")
    )
