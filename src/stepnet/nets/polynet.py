"""PolyNet's residual units on CIFAR backbones (Zhang et al. 2017), with `F = dt f` a pre-activation block.

    poly-2   I + F + F²          neumann2
    poly-3   I + F + F² + F³     neumann3
    mpoly-2  I + F + G F         neumann2, whose second evaluation has separate weights
    2-way    I + F + G           euler, whose right-hand side is the sum of two branches

A unit is a truncated backward Euler step where F is shared; 2-way is forward Euler with a wider block. Stage changes
are not part of the equation and stay plain residual blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, Unpack

from torch import nn

from stepnet.nets.blocks import Sum, UnsharedWeights, basic
from stepnet.nets.model_registry import register_model
from stepnet.nets.options import ResidualOptions
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.nets.resnet import blocks_per_stage
from stepnet.nets.stage import scheme_of_family
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
