"""DenseNet (Huang et al. 2017): a baseline of the paper's table, and the only network here without a scheme.

Each layer appends `growth` channels computed from all channels before it, so that the state grows and no differential
equation of fixed dimension is marched. DenseNet-BC adds 1x1 bottlenecks of `4 growth` channels and halves the channels
between its three blocks.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.arguments import Count, checked
from stepnet.nets.blocks import PreActivation, conv, initialise
from stepnet.nets.model_registry import register_model
from stepnet.nets.network import Network
from stepnet.nets.resnet import blocks_per_stage


class DenseLayer(nn.Module):
    """`u -> [u, f(u)]`."""

    def __init__(self, channels: int, growth: int, bottleneck: bool) -> None:
        super().__init__()
        inner = 4 * growth
        convs = [conv(channels, inner, 1), conv(inner, growth, 3)] if bottleneck else [conv(channels, growth, 3)]
        self.f = PreActivation(convs)

    def forward(self, u: Tensor) -> Tensor:
        return torch.cat((u, self.f(u)), 1)


class DenseNet(Network):
    """Three dense blocks of equal depth."""

    reduction = 4

    @checked
    def __init__(
        self, depth: int, growth: Count, bottleneck: bool = False, num_classes: int = 10, in_channels: int = 3
    ) -> None:
        super().__init__(num_classes, in_channels)
        layers = blocks_per_stage(depth, 6 if bottleneck else 3, outside=4)
        channels = 2 * growth if bottleneck else 16
        self.stem = conv(in_channels, channels, 3)
        parts: list[nn.Module] = []
        for block in range(3):
            if block:
                outputs = channels // 2 if bottleneck else channels
                mix = PreActivation([conv(channels, outputs, 1)])
                parts.append(nn.Sequential(OrderedDict({"mix": mix, "pool": nn.AvgPool2d(2)})))
                channels = outputs
            for _ in range(layers):
                parts.append(DenseLayer(channels, growth, bottleneck))
                channels += growth
        self.body = nn.Sequential(*parts)
        self.norm = nn.BatchNorm2d(channels)
        self.num_features = channels
        self.reset_classifier(num_classes)
        initialise(self)

    def forward_features(self, x: Tensor) -> Tensor:
        self.check_input(x)
        return F.relu(self.norm(self.body(self.stem(x))))


register_model("densenet100_k24", family="densenet", scheme="", num_classes=100)(partial(DenseNet, 100, 24))
register_model("densenet_bc190_k40", family="densenet", scheme="", num_classes=100)(
    partial(DenseNet, 190, 40, bottleneck=True)
)
