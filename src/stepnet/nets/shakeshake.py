"""Shake-Shake (Gastaldi 2017): forward Euler whose right-hand side is a random mean of two branches.

    X_{n+1} = X_n + (dt/2 + sqrt(dt)(eta - 1/2)) f_1(X_n) + (dt/2 + sqrt(dt)(1/2 - eta)) f_2(X_n),    eta ~ U(0, 1)

(paper, section 3.1). As an Euler step `X_n + dt f` this is `f = a f_1 + (1 - a) f_2` with the gate
`a = 1/2 + (eta - 1/2) / sqrt(dt)`. The backward pass may use another gate. At evaluation `a = 1/2`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.arguments import Count, Positive, checked
from stepnet.errors import UserError
from stepnet.nets.blocks import PostActivation, basic, conv
from stepnet.nets.draws import Draw, untraced
from stepnet.nets.early_exit import EarlyExit
from stepnet.nets.model_registry import register_model
from stepnet.nets.replay import only_reverse_mode
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.nets.resnet import blocks_per_stage
from stepnet.nets.stage import Gates
from stepnet.nets.trajectories import KineticCost
from stepnet.randomness import Stream, uniforms_by_place
from stepnet.schemes import stochastic_gate

Forward = Literal["shake", "even"]
Backward = Literal["shake", "even", "keep"]
Level = Literal["batch", "image"]
NO_DERIVATIVE = (
    "Shake-Shake in training: its gradient mixes the branches by another weight, so it is not a derivative; "
    "take backward='keep', or eval()"
)


@checked
@dataclass(frozen=True)
class Shake:
    """How the branches are mixed, in Gastaldi's words: `shake` random, `even` 1/2, `keep` as in the forward pass."""

    forward: Forward = "shake"
    backward: Backward = "shake"
    level: Level = "image"
    dt: Positive = 1


class BranchWeights(NamedTuple):
    """The weight of the first branch in the forward pass and in the backward pass, `[batch or 1, 1, 1, 1]`."""

    forward: Tensor
    backward: Tensor


class ShakeNoise(NamedTuple):
    """The noise of a Shake-Shake network: coefficients for each block, and the gates of stochastic depth, if any."""

    coefficients: Sequence[BranchWeights]
    gates: Gates | None = None


def draw_coefficients(shake: Shake, blocks: int, places: range, *key: int) -> list[BranchWeights]:
    """Draw the coefficients of all blocks for the images at `places`, a function of `key`."""
    rows = places if shake.level == "image" else range(1)
    etas = torch.from_numpy(uniforms_by_place(2 * blocks, rows, *key)).T.reshape(blocks, 2, -1, 1, 1, 1)

    def weight(kind: str, eta: Tensor) -> Tensor:
        return torch.full_like(eta, 0.5) if kind == "even" else cast(Tensor, stochastic_gate(eta, 0.5, shake.dt))

    drawn = []
    for first, second in etas:
        forward = weight(shake.forward, first)
        drawn.append(BranchWeights(forward, forward if shake.backward == "keep" else weight(shake.backward, second)))
    return drawn


class _Mix(torch.autograd.Function):
    """`a f_1 + (1 - a) f_2` forward, the gradient split by another coefficient, which is not a derivative."""

    @staticmethod
    def forward(ctx: Any, f1: Tensor, f2: Tensor, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(b)
        return torch.lerp(f2, f1, a)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        if torch.is_grad_enabled():
            raise UserError(f"second derivatives of {NO_DERIVATIVE}")
        (b,), (gradient,) = ctx.saved_tensors, gradients
        first = b * gradient
        return first, gradient - first, None, None


class Branch(PostActivation):
    """(relu, conv, bn) twice."""

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        return super().forward(u if i else F.relu(u), i)  # which comes back here with i = 0


class ShakeBlock(nn.Module):
    """`f = a f_1 + (1 - a) f_2`."""

    branch_weights = ("a", "1 - a")  # labels of the branches in drawings

    def __init__(self, inputs: int, outputs: int, stride: int, evaluations: int, shake: Shake) -> None:
        super().__init__()
        self.shake = shake
        self.branches = nn.ModuleList(Branch(basic(inputs, outputs, stride), evaluations) for _ in range(2))
        self.drawn_noise: BranchWeights | None = None  # set by the network, for one forward pass

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        f1, f2 = (branch(u, i) for branch in self.branches)
        if not self.training:
            return torch.lerp(f2, f1, 0.5)
        assert self.drawn_noise is not None, "in training, the network draws the noise of its blocks"
        if self.shake.backward == "keep":
            return torch.lerp(f2, f1, self.drawn_noise.forward.to(f1))
        if not only_reverse_mode():
            raise UserError(f"forward mode and torch.func on {NO_DERIVATIVE}")
        a, b = (c.to(f1) for c in self.drawn_noise)
        mixed: Tensor = _Mix.apply(f1, f2, a, b)  # type: ignore[no-untyped-call]
        return mixed

    def extra_repr(self) -> str:
        return f"forward={self.shake.forward}, backward={self.shake.backward}, level={self.shake.level}"


class ShiftedShortcut(nn.Module):
    """Gastaldi's shortcut across a stride: every second pixel and its lower right neighbour, a 1x1 convolution each."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.here = conv(inputs, outputs // 2, 1)
        self.there = conv(inputs, outputs // 2, 1)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, u: Tensor) -> Tensor:
        u = F.relu(u)
        shifted = F.pad(u[:, :, 1:, 1:], (0, 1, 0, 1))
        parts = self.here(u[:, :, ::2, ::2]), self.there(shifted[:, :, ::2, ::2])
        return cast(Tensor, self.norm(torch.cat(parts, 1)))


@dataclass(frozen=True)
class ShakeBackbone(Backbone):
    """A backbone whose blocks shake. Each branch begins with a ReLU, so that none follows the sum."""

    shake: Shake = Shake()

    def make_block(self, inputs: int, outputs: int, stride: int, evaluations: int = 1) -> nn.Module:
        return ShakeBlock(inputs, outputs, stride, evaluations, self.shake)

    def make_shortcut(self, inputs: int, outputs: int, stride: int) -> nn.Module:
        if stride == 2:
            return ShiftedShortcut(inputs, outputs)
        layers = {"relu": nn.ReLU(), "conv": conv(inputs, outputs, 1), "norm": nn.BatchNorm2d(outputs)}
        return nn.Sequential(OrderedDict(layers))  # where channels grow without a stride

    def make_stem(self, in_channels: int) -> nn.Module:
        return nn.Sequential(conv(in_channels, self.stem_width, 3), nn.BatchNorm2d(self.stem_width))


class ShakeShake(ResidualNetwork):
    """A residual network whose blocks shake. The noise is defined for one step size, so that it cannot be refined."""

    steps_per_block = 0

    def __init__(self, backbone: ShakeBackbone, scheme: str = "euler", **options: Any) -> None:
        if options.get("noise") is not None:
            raise UserError(f"noise = {options['noise']!r}: a Shake-Shake network has its noise already; leave it out")
        super().__init__(backbone, scheme, dt=backbone.shake.dt, **options)
        self.shake = backbone.shake
        self.norm = nn.ReLU()  # every branch ends in a norm

    @property
    def shaken(self) -> list[ShakeBlock]:
        """The blocks in order of depth."""
        return [module for module in self.modules() if isinstance(module, ShakeBlock)]

    def draw(self, seed: int, step: int, places: range) -> ShakeNoise:
        """Draw one pair for each block and step: all stages of a Runge–Kutta step mix the branches alike."""
        coefficients = draw_coefficients(self.shake, self.depth, places, seed, step, Stream.NOISE)
        return ShakeNoise(coefficients, super().draw(seed, step, places))

    def forward_features(
        self,
        x: Tensor,
        noise: Draw = None,
        *,
        cost: KineticCost | None = None,
        exit: float | EarlyExit | None = None,
    ) -> Tensor:
        """The last feature map."""
        if not self.training:
            return super().forward_features(x, cost=cost, exit=exit)
        noise = untraced(noise)
        coefficients, gates = self.next_draw(x) if noise is None else noise
        blocks = self.shaken
        if len(coefficients) != len(blocks):
            raise UserError(f"noise for {len(coefficients)} blocks: the network has {len(blocks)}; `draw` makes it")
        for block, drawn in zip(blocks, coefficients, strict=True):
            block.drawn_noise = drawn
        features = super().forward_features(x, gates, cost=cost, exit=exit)
        for block in blocks:
            block.drawn_noise = None
        return features


@checked
def cifar_shakeshake(
    depth: int = 26,
    width: Count = 32,
    forward: Forward = "shake",
    backward: Backward = "shake",
    level: Level = "image",
    dt: float = 1,
    scheme: str = "euler",
    **options: Any,
) -> ShakeShake:
    """A Shake-Shake network of `6n + 2` layers with two branches of `width`, `2 width`, `4 width` channels."""
    n = blocks_per_stage(depth, 6)
    backbone = ShakeBackbone(
        basic,
        (width, 2 * width, 4 * width),
        (n, n, n),
        stem_width=16,
        pre_activation=True,
        shake=Shake(forward, backward, level, dt),
    )
    return ShakeShake(backbone, scheme, **options)


for _width in (32, 64, 96):
    register_model(f"shakeshake26_2x{_width}d", family="shakeshake")(partial(cifar_shakeshake, 26, _width))
