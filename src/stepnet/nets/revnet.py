"""RevNet (Gomez, Ren, Urtasun, Grosse 2017): the coupled scheme on the two halves of the channels.

CIFAR 38 and 110: basic blocks, parameter-free shortcuts. CIFAR 164 and ImageNet 56, 104: bottlenecks; where the
channels grow each half is projected by a 1x1 convolution of its own. Every unit is a pair `(f, g)`, the first of a
stage too, so a unit with basic blocks counts four layers and one with bottlenecks six.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.nets.blocks import basic, bottleneck, initialise
from stepnet.nets.bounds import BoundOption
from stepnet.nets.memory_modes import Memory
from stepnet.nets.model_registry import register_model
from stepnet.nets.options import Depths, RevNetOptions, StepSizes
from stepnet.nets.residual import Backbone, Network, sizes_by_stage
from stepnet.nets.stage import CoupledTransition, Coupling, Stage, check_makes_network
from stepnet.schemes import Scheme, get_scheme, warn_if_rarely_used

# The widths are those of one half, X or Y; the stem's are of both together.
CIFAR = {
    38: Backbone(basic, (16, 32, 56), (3, 3, 3), stem_width=32, pre_activation=True),
    110: Backbone(basic, (16, 32, 64), (9, 9, 9), stem_width=32, pre_activation=True),
    164: Backbone(bottleneck, (64, 128, 256), (9, 9, 9), stem_width=32, pre_activation=True, shortcut="raw"),
}
IMAGENET = {
    depth: Backbone(
        bottleneck,
        (256, 512, 1024, 1664),
        (2, 2, units, 2),
        stem_width=128,
        pre_activation=True,
        shortcut="raw",
        large_images=True,
    )
    for depth, units in {56: 3, 104: 11}.items()
}


class RevNet(Network):
    """The channels split in halves `(X, Y)`, reversible stages, the halves joined before the head."""

    steps_per_block = 1

    def __init__(
        self,
        backbone: Backbone,
        scheme: str | Scheme = "coupled",
        num_classes: int = 10,
        in_channels: int = 3,
        dt: StepSizes = 1,
        k: float | None = None,
        k_per_channel: bool = False,
        k_bound: BoundOption = None,
        depths: Depths | None = None,
    ) -> None:
        super().__init__(num_classes, in_channels)
        self.scheme = get_scheme(scheme).over(get_scheme("coupled"))
        check_makes_network(self.scheme, pair=True)
        backbone = backbone.with_depths(depths)
        dts = sizes_by_stage(dt, len(backbone.widths))
        self.stem = backbone.make_stem(in_channels)
        # An inverse that divides by k, which may be near 0, is taken where it is asked for.
        memory: Memory = "stored" if self.scheme.trainable else "reversible"
        self.stages = nn.ModuleList()
        for index, width in enumerate(backbone.widths):
            units, transition = _units(backbone, index, self.scheme)
            channels = width if k_per_channel else None
            self.stages.append(Stage(self.scheme, units, transition, dts[index], None, k, channels, k_bound, memory))
        warn_if_rarely_used(self.scheme, (cast(Stage, stage).plan for stage in self.stages))
        self.num_features = 2 * backbone.widths[-1]
        self.norm = nn.BatchNorm2d(self.num_features)
        self.reduction = backbone.reduction
        self.feature_info = backbone.feature_info(parts=2)
        self.reset_classifier(num_classes)
        initialise(self)

    def forward_features(self, x: Tensor) -> Tensor:
        self.check_input(x)
        upper, lower = self.stem(x).chunk(2, dim=1)
        state = upper, lower
        for stage in self.stages:
            state = stage(state)
        return F.relu(self.norm(torch.cat(state, dim=1)))


def _units(backbone: Backbone, index: int, scheme: Scheme) -> tuple[list[Coupling], CoupledTransition | None]:
    inputs, width, stride, changes = backbone.entry(index, parts=2)
    transition = None
    if changes:
        shortcuts = backbone.make_shortcut(inputs, width, stride), backbone.make_shortcut(inputs, width, stride)
        transition = CoupledTransition(
            Coupling(backbone.make_block(inputs, width, stride), backbone.make_block(width, width, 1)), shortcuts
        )
    counts = backbone.evaluations(index, scheme, transition)
    pairs = ((backbone.make_block(width, width, 1, n), backbone.make_block(width, width, 1, n)) for n in counts)
    return [Coupling(f, g) for f, g in pairs], transition


def revnet(depth: int, **options: Unpack[RevNetOptions]) -> RevNet:
    """A RevNet of Gomez et al. by its number of layers."""
    backbones = {**CIFAR, **IMAGENET}
    if depth not in backbones:
        raise UserError(f"RevNet of depth {depth!r}: expected one of {', '.join(map(str, sorted(backbones)))}")
    return RevNet(backbones[depth], **options)


for _depth in CIFAR:
    register_model(f"revnet{_depth}", family="revnet", scheme="coupled")(partial(revnet, _depth))
    register_model(f"lm_revnet{_depth}", family="lm_revnet", scheme="lm+coupled")(partial(revnet, _depth, scheme="lm"))
for _depth in IMAGENET:
    register_model(f"revnet{_depth}", family="revnet", scheme="coupled", image_size=224, num_classes=1000)(
        partial(revnet, _depth)
    )
