"""FractalNet (Larsson et al. 2017): a Runge–Kutta scheme whose evaluations have separate weights.

Five fractals of 64, 128, 256, 512 and 512 channels, one step of `full_fractal` each. The base map of the scheme is
Larsson's layer B (conv, dropout, bn, relu) itself: `u + f(u) = B(u)` with `f = B - I`, kept unsubtracted. As in his
code, all columns that meet are averaged, and at the end of a fractal each column is pooled before they are joined.
A 1x1 convolution before the fractal increases the channels, so that they are constant in a fractal; with it, 20 layers
have the 38.6M parameters that he reports. The 40 layers here have half the widths; his columns differ in width.

Two networks of the paper's formula, with pooling between the fractals: `scheme="fractal3"`, whose short paths are the
identity, and `convolutions=True`, in which a separate convolution stands wherever the numerical method has the state
itself: `f_{c+1} = 1/2 k * + 1/2 f_c ∘ f_c`, `f_1 = k * + B`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any, cast

import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.arguments import Count, Probability, Seed, checked
from stepnet.errors import UserError
from stepnet.nets.blocks import UnsharedWeights, conv, initialise
from stepnet.nets.draws import SeededNoise, untraced, zero_gradient
from stepnet.nets.model_registry import register_model
from stepnet.nets.network import FeatureInfo, Network
from stepnet.nets.stage import Stage
from stepnet.randomness import Stream, random_words, uniform
from stepnet.schemes import (
    EULER,
    Coefficient,
    ConvolvedFractal,
    Difference,
    Fractal,
    FullFractal,
    Scheme,
    get_scheme,
    plan,
)

WIDTHS = {20: (64, 128, 256, 512, 512), 40: (32, 64, 128, 256, 256)}
# For each fractal and each of its joins: the weights of the columns that meet, or of the paper's long path alone.
Joins = Sequence[Sequence[Coefficient]]


class Layer(nn.Sequential):
    """Larsson's layer B: conv, dropout, bn, relu."""

    def __init__(self, inputs: int, outputs: int, size: int = 3, dropout: float = 0.0) -> None:
        super().__init__(conv(inputs, outputs, size), nn.BatchNorm2d(outputs), nn.ReLU())
        self.dropout = dropout

    def forward(self, u: Tensor) -> Tensor:
        convolve, norm, relu = self
        u = convolve(u)
        return cast(Tensor, relu(norm(F.dropout(u, self.dropout, self.training) if self.dropout else u)))


class LayerMinusIdentity(Layer):
    """`f(u) = B(u) - u`. The last layer of a column ends in max-pooling."""

    whole = True  # drawings show B

    def __init__(self, width: int, dropout: float = 0.0, pools: bool = False) -> None:
        super().__init__(width, width, dropout=dropout)
        self.pools = pools

    def forward(self, u: Tensor, i: int = 0) -> Difference:  # type: ignore[override]
        end = super().forward(u)
        return Difference(F.max_pool2d(end, 2) if self.pools else end, u)


class ConvolvedState(nn.Module):
    """`f(u) = k * u + B(u) - u`; without B on a short path, `f(u) = k * u - u`. The initial k is the identity."""

    whole = True

    def __init__(self, width: int, layer: Layer | None) -> None:
        super().__init__()
        self.k = conv(width, width, 3)
        self.layer = layer

    def forward(self, u: Tensor, i: int = 0) -> Difference:
        carried = self.k(u)
        return Difference(carried if self.layer is None else carried + self.layer(u), u)


class FractalNet(SeededNoise, Network):
    """Fractals with pooling between them, or at the ends of their columns.

    `drop_path` is the probability with which a join drops a path (at least one stays), `global_drop` that of a batch
    which runs through one column of the whole network, `dropout` the rate in the layers of the last fractal, which
    rises linearly from 0 in the first. All three act in training only. `convolutions` puts the paper's trainable
    `k_1, k_2, k_3, …` on the paths.
    """

    @checked
    def __init__(
        self,
        columns: Count,
        widths: Sequence[Count],
        scheme: str | Scheme | None = None,
        num_classes: int = 10,
        in_channels: int = 3,
        dt: float = 1,
        drop_path: Probability = 0.0,
        global_drop: Probability = 0.0,
        dropout: Probability = 0.0,
        seed: Seed = 0,
        convolutions: bool = False,
    ) -> None:
        super().__init__(num_classes, in_channels)
        fractal = _fractal_scheme(scheme, columns, convolutions)
        self.scheme: Scheme = fractal
        self.columns = fractal.columns
        # For each join: how many of the deepest columns meet, and on how many paths.
        self.joins = [(c, fractal.paths(c)) for c in fractal.joins]
        self.pools_columns = isinstance(self.scheme, FullFractal)  # instead of pooling between the fractals
        if self.pools_columns and dt != 1:
            raise UserError(
                f"dt = {dt!r}: the layers of scheme {self.scheme.name!r} are whole maps B(u), without a step size; "
                f"take scheme='fractal{self.columns}'"
            )
        self.drop_path, self.global_drop = drop_path, global_drop
        self.seed = seed
        self.entries, self.stages = nn.ModuleList(), nn.ModuleList()
        channels = in_channels
        for n, width in enumerate(widths):
            self.entries.append(Layer(channels, width, 1) if channels != width else nn.Identity())
            maps = self._maps(width, dropout * n / max(len(widths) - 1, 1))
            self.stages.append(Stage(self.scheme, [UnsharedWeights(maps)], dt=dt))
            channels = width
        first = int(self.pools_columns)  # a fractal that pools ends at half the size of its input
        self.reduction = 2 ** (len(widths) - 1 + first)
        self.feature_info: Sequence[FeatureInfo] = [
            {"num_chs": width, "reduction": 2 ** (n + first), "module": f"stages.{n}"} for n, width in enumerate(widths)
        ]
        self.num_features = channels
        self.reset_classifier(num_classes)
        initialise(self)
        for module in self.modules():
            if isinstance(module, ConvolvedState):
                nn.init.dirac_(module.k.weight)

    def _maps(self, width: int, dropout: float) -> list[nn.Module]:
        """Build the map of each evaluation of one fractal."""
        if isinstance(self.scheme, ConvolvedFractal):
            layers = (Layer(width, width, dropout=dropout) if level == 1 else None for level in _levels(self.columns))
            return [ConvolvedState(width, layer) for layer in layers]
        ends = self.scheme.ends if isinstance(self.scheme, FullFractal) else []
        (count,) = plan(self.scheme, 1).evaluations
        return [LayerMinusIdentity(width, dropout, i in ends) for i in range(count)]

    @property
    def compile_by_block(self) -> bool:
        return bool(self.drop_path or self.global_drop)

    def forward_features(self, x: Tensor, noise: Joins | None = None) -> Tensor:
        """Return the last feature map. `noise` is the weights of paths at the joins, from `draw` or `column_joins`."""
        self.check_input(x)
        noise = untraced(noise)
        joins = self.next_draw(x) if noise is None and self.training and self.compile_by_block else noise
        for n, (enter, stage) in enumerate(zip(self.entries, self.stages, strict=True)):
            x = enter(F.max_pool2d(x, 2) if n and not self.pools_columns else x)
            x = stage(x, ks=None if joins is None else [joins[n]])
        # A dropped path's gradient is zero, not missing: see zero_gradient.
        return x if joins is None else zero_gradient(x, list(self.stages.parameters()))

    def forward(self, x: Tensor, noise: Joins | None = None) -> Tensor:
        return self.forward_head(self.forward_features(x, noise))

    def draw(self, seed: int, step: int, places: range) -> Joins | None:
        """Draw drop-path for a training step: one column of the whole network, or independent drops at each join."""
        if not (self.drop_path or self.global_drop):
            return None
        words = random_words(2 + len(self.stages) * sum(paths + 1 for _, paths in self.joins), seed, step, Stream.GATES)
        whole, column, *local = uniform(words).tolist()
        if whole < self.global_drop:
            return self.column_joins(1 + int(column * self.columns))
        drawn = iter(local)
        return [
            [_local_join(self.drop_path, [next(drawn) for _ in range(paths)], next(drawn)) for _, paths in self.joins]
            for _ in self.stages
        ]

    def column_joins(self, column: int) -> Joins:
        """Return join weights that select one `column`, whose fractals are `2^(column - 1)` layers deep."""
        if not 1 <= column <= self.columns:
            raise UserError(f"column {column!r}: expected 1 (shallowest) to {self.columns} (deepest)")
        joins = []
        for deepest, paths in self.joins:  # a join without this column is not computed
            place = min(max(column - 1 - (self.columns - deepest), 0), paths - 1)
            joins.append([int(i == place) for i in range(paths)])
        return [joins for _ in self.stages]

    def extract_column(self, column: int) -> FractalNet:
        """Return the column as a plain network with the same weights: forward Euler with `f = B - I`."""
        (step,) = plan(self.scheme, 1, ks=[self.column_joins(column)[0]]).steps
        used = [evaluation.result.i for evaluation in step.evaluations]
        plain = FractalNet(1, (), num_classes=0, in_channels=self.in_channels)
        plain.scheme, plain.entries, plain.pools_columns = EULER, self.entries, self.pools_columns
        for stage in self.stages:
            assert isinstance(stage, Stage)
            (fractal,) = stage.blocks
            assert isinstance(fractal, UnsharedWeights)
            plain.stages.append(Stage(EULER, [fractal.fs[i] for i in used], dt=stage.dts[0]))
        plain.reduction, plain.num_features, plain.feature_info = self.reduction, self.num_features, self.feature_info
        plain.num_classes, plain.head = self.num_classes, self.head
        return plain.train(self.training)


def _levels(c: int) -> list[int]:
    """Return the level of each map of a full `f_c`, in the order of the recursion; those above 1 are short paths."""
    return [1] if c == 1 else [c, *_levels(c - 1), *_levels(c - 1)]


def _local_join(drop: float, paths: Sequence[float], choice: float) -> Sequence[Coefficient]:
    """Return the weights of paths that are dropped with probability `drop`: the mean of the remaining ones.

    The other arguments are uniform in [0, 1): one for each path, and one to choose a path if all are dropped.
    """
    remains = [drawn >= drop for drawn in paths]
    if not any(remains):
        remains[int(choice * len(remains))] = True
    return [Fraction(int(path), sum(remains)) for path in remains]


def _fractal_scheme(scheme: str | Scheme | None, columns: int, convolutions: bool) -> Fractal:
    """Return Larsson's fractal, or one of the paper's formula; raise for any other scheme."""
    method = get_scheme(f"full_fractal{columns}" if scheme is None else scheme)
    if not isinstance(method, Fractal):
        raise UserError(
            f"scheme {method.name!r} on FractalNet: each stage is one fractal step, so that lm has no earlier state of "
            "the same shape to read; take 'fractal3' or 'full_fractal3', or a resnet with scheme='lm+fractal3'"
        )
    if convolutions and scheme is not None and not isinstance(method, FullFractal):
        raise UserError(
            f"convolutions=True: the short paths of scheme {method.name!r} are the identity; leave the scheme out"
        )
    return ConvolvedFractal(method.columns) if convolutions else method


@checked
def cifar_fractalnet(depth: int, widths: Sequence[Count] | None = None, **options: Any) -> FractalNet:
    """A CIFAR FractalNet of `5 * 2^(columns - 1)` layers along its deepest column."""
    columns = {5 * 2 ** (c - 1): c for c in range(1, 6)}
    if depth not in columns:
        raise UserError(f"FractalNet of depth {depth!r}: expected one of {', '.join(map(str, columns))}")
    return FractalNet(columns[depth], WIDTHS.get(depth, WIDTHS[20]) if widths is None else widths, **options)


for _depth, _scheme in ((20, "full_fractal3"), (40, "full_fractal4")):
    register_model(f"fractalnet{_depth}", family="fractalnet", scheme=_scheme, num_classes=100)(
        partial(cifar_fractalnet, _depth)
    )
