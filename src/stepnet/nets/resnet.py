"""ResNet: forward Euler. LM-ResNet: the same backbone, the LM scheme (paper, tables 2-4).

CIFAR (He et al. 2015, 2016): depth 6n+2 with basic blocks of 16, 32, 64 channels, depth 9n+2 with bottlenecks of
64, 128, 256; shortcuts are parameter-free where the paper's counts ask for it (basic blocks) and projections where
channels grow without a stride (bottlenecks). ImageNet: the 50, 101 and 152 layers of He et al. with projections.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

from stepnet.arguments import Count
from stepnet.errors import UserError
from stepnet.nets.blocks import Shortcut, basic, bottleneck
from stepnet.nets.model_registry import register_model
from stepnet.nets.options import ResidualOptions
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.schemes import Scheme

IMAGENET_DEPTHS: dict[int, tuple[int, ...]] = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def cifar_resnet(
    depth: int,
    pre_activation: bool = False,
    scheme: str | Scheme = "euler",
    shortcut: Shortcut = "subsample",
    width: Count = 16,
    **options: Unpack[ResidualOptions],
) -> ResidualNetwork:
    """A CIFAR ResNet of `6n + 2` layers, marched by any scheme; its stages have 1, 2 and 4 times `width` channels."""
    n = blocks_per_stage(depth, 6)
    widths, depths = (width, 2 * width, 4 * width), (n, n, n)
    backbone = Backbone(basic, widths, depths, stem_width=width, pre_activation=pre_activation, shortcut=shortcut)
    return ResidualNetwork(backbone, scheme, **options)


def cifar_bottleneck_resnet(
    depth: int, scheme: str | Scheme = "euler", shortcut: Shortcut = "projection", **options: Unpack[ResidualOptions]
) -> ResidualNetwork:
    """A pre-activation CIFAR ResNet of `9n + 2` layers with bottlenecks."""
    n = blocks_per_stage(depth, 9)
    widths, depths = (64, 128, 256), (n, n, n)
    backbone = Backbone(bottleneck, widths, depths, stem_width=16, pre_activation=True, shortcut=shortcut)
    return ResidualNetwork(backbone, scheme, **options)


def imagenet_resnet(
    depth: int,
    pre_activation: bool = False,
    scheme: str | Scheme = "euler",
    shortcut: Shortcut = "projection",
    **options: Unpack[ResidualOptions],
) -> ResidualNetwork:
    """An ImageNet ResNet with bottlenecks."""
    if depth not in IMAGENET_DEPTHS:
        raise UserError(f"ImageNet ResNet of depth {depth!r}: expected one of {', '.join(map(str, IMAGENET_DEPTHS))}")
    backbone = Backbone(
        bottleneck,
        (256, 512, 1024, 2048),
        IMAGENET_DEPTHS[depth],
        stem_width=64,
        pre_activation=pre_activation,
        shortcut=shortcut,
        large_images=True,
    )
    return ResidualNetwork(backbone, scheme, **options)


def blocks_per_stage(depth: int, layers: int, outside: int = 2) -> int:
    """Return the `n` in `depth = layers n + outside`; raise for another depth."""
    n, rest = divmod(depth - outside, layers) if isinstance(depth, int) else (0, 1)
    if n < 1 or rest:
        examples = ", ".join(str(layers * i + outside) for i in (1, 2, 3))
        raise UserError(f"depth {depth!r}: expected {layers}n + {outside}, for example {examples}")
    return n


def register_with_lm(name: str, family: str, build: partial[ResidualNetwork], **about: int) -> None:
    """Register a network, its pre-activation version as `preact_…`, and that with the scheme LM as `lm_…`."""
    pre, lm = partial(build, pre_activation=True), partial(build, pre_activation=True, scheme="lm")
    register_model(name, family=family, scheme="euler", **about)(build)
    register_model(f"preact_{name}", family=family, scheme="euler", **about)(pre)
    register_model(f"lm_{name}", family=f"lm_{family}", scheme="lm", **about)(lm)


for _depth in (20, 32, 44, 56, 110):
    register_with_lm(f"resnet{_depth}", "resnet", partial(cifar_resnet, _depth))
register_model("resnet1202", family="resnet")(partial(cifar_resnet, 1202))
for _depth in (164, 1001):
    register_model(f"preact_resnet{_depth}", family="resnet")(partial(cifar_bottleneck_resnet, _depth))
register_model("lm_resnet164", family="lm_resnet", scheme="lm")(partial(cifar_bottleneck_resnet, 164, scheme="lm"))
for _depth in IMAGENET_DEPTHS:
    register_with_lm(f"resnet{_depth}", "resnet", partial(imagenet_resnet, _depth), num_classes=1000, image_size=224)
# Haber and Ruthotto's networks, the special cases k = -1 and k = 1 of LM: in its equation 2 u' = f the two-step
# midpoint takes the step 1/2, so that u_{n+1} = u_{n-1} + f(u_n).
register_model("leapfrog_resnet20", family="lm_resnet", scheme="leapfrog")(
    partial(cifar_resnet, 20, pre_activation=True, scheme="leapfrog")
)
register_model("midpoint2_resnet20", family="lm_resnet", scheme="midpoint2")(
    partial(cifar_resnet, 20, pre_activation=True, scheme="midpoint2", dt=0.5)
)
