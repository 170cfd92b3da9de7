"""FractalNet (Larsson et al. 2017): a Runge–Kutta scheme whose every evaluation has weights of its own.

Five fractals of 64, 128, 256, 512 and 512 channels, one step of `full_fractal` each, with pooling between them. The
base map of the scheme is Larsson's layer B (conv, bn, relu) itself: `u + f(u) = B(u)` with `f = B - I`, kept
unsubtracted. Joins are means of two paths. Channels grow in a 1x1 convolution before the fractal, so that a fractal
keeps its state's shape; that is also what brings the paper's 38.6M for 20 layers. `convolutions=True` gives the network
of the paper's formula, in which a convolution of its own stands wherever the numerical method has the state itself:
`f_{c+1} = 1/2 k * + 1/2 f_c ∘ f_c`, `f_1 = k * + B`; with `scheme="fractal3"` the short paths are the identity. The 40
layers are ours, at half the widths: those of Larsson et al. have columns of different widths.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.errors import UserError, check_count, check_probability
from stepnet.nets.blocks import OwnWeights, conv, initialise
from stepnet.nets.draws import OwnDraws, untraced, zero_gradient
from stepnet.nets.model_registry import register_model
from stepnet.nets.residual import FeatureInfo, Network
from stepnet.nets.stage import Stage
from stepnet.randomness import Stream, random_words, uniform
from stepnet.schemes import Difference, Scheme, get_scheme
from stepnet.schemes.arithmetic import Coefficient
from stepnet.schemes.fractal import Fractal, FullFractal
from stepnet.schemes.plan import EULER, plan

WIDTHS = {20: (64, 128, 256, 512, 512), 40: (32, 64, 128, 256, 256)}
MEAN = Fraction(1, 2)
Joins = Sequence[Sequence[Coefficient]]  # for each fractal, the weight of the long path at each of its joins


class Layer(nn.Sequential):
    """Larsson's layer B: conv, bn, relu."""

    def __init__(self, inputs: int, outputs: int, size: int = 3) -> None:
        super().__init__(conv(inputs, outputs, size), nn.BatchNorm2d(outputs), nn.ReLU())


class LayerMinusIdentity(Layer):
    """`f(u) = B(u) - u`."""

    whole = True  # B is what the network has, and what a drawing shows

    def forward(self, u: Tensor, i: int = 0) -> Difference:
        return Difference(super().forward(u), u)  # type: ignore[no-untyped-call]


class ConvolvedState(nn.Module):
    """`f(u) = k * u + B(u) - u`; without B on a short path, `f(u) = k * u - u`. The convolution begins as 1."""

    whole = True

    def __init__(self, width: int, layer: Layer | None) -> None:
        super().__init__()
        self.k = conv(width, width, 3)
        self.layer = layer

    def forward(self, u: Tensor, i: int = 0) -> Difference:
        carried = self.k(u)
        return Difference(carried if self.layer is None else carried + self.layer(u), u)


class FractalNet(OwnDraws, Network):
    """Fractals with pooling between them.

    `drop_path` is the probability with which a local join drops a path (at least one stays), `global_drop` that of a
    batch which runs through one column of the whole network. Both act in training only. `convolutions` puts the
    paper's trainable `k_1, k_2, k_3, …` on the paths.
    """

    def __init__(
        self,
        columns: int,
        widths: Sequence[int],
        scheme: str | Scheme | None = None,
        num_classes: int = 10,
        in_channels: int = 3,
        dt: float = 1,
        drop_path: float = 0.0,
        global_drop: float = 0.0,
        seed: int = 0,
        convolutions: bool = False,
    ) -> None:
        super().__init__(num_classes, in_channels)
        self.scheme = get_scheme(scheme or f"full_fractal{columns}")
        if not isinstance(self.scheme, Fractal):
            raise UserError(
                f"scheme {self.scheme.name!r} would make FractalNet another network, whose stages are one fractal step "
                "each: take 'fractal3' or 'full_fractal3', or a resnet with scheme='lm+fractal3'"
            )
        if convolutions and not isinstance(self.scheme, FullFractal):
            raise UserError(
                f"convolutions=True: the short paths of scheme {self.scheme.name!r} are the identity; "
                f"take 'full_fractal{self.scheme.columns}'"
            )
        self.columns = self.scheme.columns
        check_probability("drop_path", drop_path)
        check_probability("global_drop", global_drop)
        self.drop_path, self.global_drop = drop_path, global_drop
        self.seed = seed
        self.entries, self.stages = nn.ModuleList(), nn.ModuleList()
        (layers,) = plan(self.scheme, 1).evaluations
        levels = _levels(self.scheme.columns)
        channels = in_channels
        for width in widths:
            self.entries.append(Layer(channels, width, 1) if channels != width else nn.Identity())
            maps: Sequence[nn.Module]
            if convolutions:
                maps = [ConvolvedState(width, Layer(width, width) if level == 1 else None) for level in levels]
            else:
                maps = [LayerMinusIdentity(width, width) for _ in range(layers)]
            self.stages.append(Stage(self.scheme, [OwnWeights(maps)], dt=dt))
            channels = width
        self.reduction = 2 ** (len(widths) - 1)
        self.feature_info: Sequence[FeatureInfo] = [
            {"num_chs": width, "reduction": 2**n, "module": f"stages.{n}"} for n, width in enumerate(widths)
        ]
        self.num_features = channels
        self.reset_classifier(num_classes)
        initialise(self)
        for module in self.modules():
            if isinstance(module, ConvolvedState):
                nn.init.dirac_(module.k.weight)

    @property
    def compile_by_block(self) -> bool:
        return bool(self.drop_path or self.global_drop)

    def forward_features(self, x: Tensor, noise: Joins | None = None) -> Tensor:
        """The last feature map. `noise` weighs the paths at the joins, as `draw` or `column_joins` give it."""
        self.check_input(x)
        noise = untraced(noise)
        joins = self.next_draw(x) if noise is None and self.training and self.compile_by_block else noise
        for n, (enter, stage) in enumerate(zip(self.entries, self.stages, strict=True)):
            x = enter(F.max_pool2d(x, 2) if n else x)
            x = stage(x, given=None if joins is None else [joins[n]])
        # A dropped path's gradient is zero, not missing: see zero_gradient.
        return x if joins is None else zero_gradient(x, list(self.stages.parameters()))

    def forward(self, x: Tensor, noise: Joins | None = None) -> Tensor:
        return self.forward_head(self.forward_features(x, noise))

    def draw(self, seed: int, step: int, places: range) -> Joins | None:
        """Drop-path of a training step: one column of the whole network, or independent drops at each join."""
        if not (self.drop_path or self.global_drop):
            return None
        joins = len(_joins(self.columns))
        words = random_words(2 + len(self.stages) * joins * 3, seed, step, Stream.GATES)
        whole, column, *local = uniform(words).tolist()
        if whole < self.global_drop:
            return self.column_joins(1 + int(column * self.columns))
        drawn = iter(local)
        return [
            [_local_join(self.drop_path, next(drawn), next(drawn), next(drawn)) for _ in range(joins)]
            for _ in self.stages
        ]

    def column_joins(self, column: int) -> Joins:
        """The joins that let only `column` through, whose fractals are `2^(column - 1)` layers deep."""
        levels = _joins(self.columns)
        own = self.columns - column + 1
        if not 1 <= own <= self.columns:
            raise UserError(f"column {column!r}: expected 1 (shallowest) to {self.columns} (deepest)")
        return [[0 if level == own else 1 for level in levels] for _ in self.stages]

    def extract_column(self, column: int) -> FractalNet:
        """That column as a plain network of its own, which shares its weights: forward Euler with `f = B - I`."""
        (step,) = plan(self.scheme, 1, given=[self.column_joins(column)[0]]).steps
        used = [evaluation.result.i for evaluation in step.evaluations]
        plain = FractalNet(1, (), num_classes=0, in_channels=self.in_channels)
        plain.scheme, plain.entries = EULER, self.entries
        for stage in self.stages:
            assert isinstance(stage, Stage)
            (fractal,) = stage.blocks
            assert isinstance(fractal, OwnWeights)
            plain.stages.append(Stage(EULER, [fractal.fs[i] for i in used], dt=stage.dt))
        plain.reduction, plain.num_features, plain.feature_info = self.reduction, self.num_features, self.feature_info
        plain.num_classes, plain.head = self.num_classes, self.head
        return plain.train(self.training)


def _levels(c: int) -> list[int]:
    """At which level each map of a full `f_c` stands, in the order of the recursion: 1 is no short path."""
    return [1] if c == 1 else [c, *_levels(c - 1), *_levels(c - 1)]


def _joins(c: int) -> list[int]:
    """The level of each join of `f_c`: a join has one short path."""
    return [level for level in _levels(c) if level > 1]


def _local_join(drop: float, short: float, long: float, saved: float) -> Coefficient:
    """The weight of the long path when each path is dropped with that probability and one survives at least.

    The other arguments are uniform in [0, 1): one for each path, one for which of two dropped paths is saved.
    """
    if min(short, long) >= drop:
        return MEAN
    return int(long >= drop) if max(short, long) >= drop else int(saved < 0.5)


def cifar_fractalnet(depth: int, widths: Sequence[int] | None = None, **options: Any) -> FractalNet:
    """A CIFAR FractalNet of `5 * 2^(columns - 1)` layers along its deepest column."""
    columns = {5 * 2 ** (c - 1): c for c in range(1, 6)}
    if depth not in columns:
        raise UserError(f"FractalNet of depth {depth!r}: expected one of {', '.join(map(str, columns))}")
    if widths is not None and not (isinstance(widths, Sequence) and len(widths)):
        raise UserError(f"widths = {widths!r}: expected the channels of each fractal")
    for width in widths or ():
        check_count("width of a fractal", width)
    return FractalNet(columns[depth], widths or WIDTHS.get(depth, WIDTHS[20]), **options)


for _depth, _scheme in ((20, "full_fractal3"), (40, "full_fractal4")):
    register_model(f"fractalnet{_depth}", family="fractalnet", scheme=_scheme, num_classes=100)(
        partial(cifar_fractalnet, _depth)
    )
