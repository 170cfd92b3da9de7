"""RevNet (Gomez, Ren, Urtasun, Grosse 2017): the coupled scheme on the two halves of the channels.

CIFAR 38 and 110: basic blocks, parameter-free shortcuts. CIFAR 164 and ImageNet 56, 104: bottlenecks; where the
channels grow, each half is projected by a separate 1x1 convolution. Every unit is a pair `(f, g)`, the first of a
stage too, so a unit with basic blocks counts four layers and one with bottlenecks six.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from stepnet.errors import UserError
from stepnet.nets.blocks import basic, bottleneck
from stepnet.nets.model_registry import register_model
from stepnet.nets.options import BackboneOptions, RevNetOptions
from stepnet.nets.residual import Backbone, BackboneNetwork
from stepnet.nets.transitions import CoupledTransition, Coupling
from stepnet.schemes import Scheme, get_scheme

# Widths are those of one half, X or Y; the stem's is that of both.
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


class RevNet(BackboneNetwork):
    """The channels split in halves `(X, Y)`, reversible stages, the halves joined before the head."""

    parts = 2

    def __init__(
        self, backbone: Backbone, scheme: str | Scheme = "coupled", **options: Unpack[BackboneOptions]
    ) -> None:
        super().__init__(backbone, get_scheme(scheme).over(get_scheme("coupled")), **options)
        if not self.scheme.trainable:  # an inverse that divides by k, which may be near 0, has to be asked for
            self.set_memory("reversible")

    def make_blocks(self, backbone: Backbone, index: int) -> tuple[CoupledTransition | None, list[Coupling]]:
        inputs, width, stride, changes = backbone.entry(index, self.parts)
        transition = None
        if changes:
            shortcuts = backbone.make_shortcut(inputs, width, stride), backbone.make_shortcut(inputs, width, stride)
            transition = CoupledTransition(
                Coupling(backbone.make_block(inputs, width, stride), backbone.make_block(width, width, 1)), shortcuts
            )
        counts = backbone.evaluations(index, self.scheme, transition)
        pairs = ((backbone.make_block(width, width, 1, n), backbone.make_block(width, width, 1, n)) for n in counts)
        return transition, [Coupling(f, g) for f, g in pairs]

    def forward_features(self, x: Tensor) -> Tensor:
        self.check_input(x)
        upper, lower = self.stem(x).chunk(2, dim=1)
        state = upper, lower
        for stage in self.stages:
            state = stage(state)
        return F.relu(self.norm(torch.cat(state, dim=1)))


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
