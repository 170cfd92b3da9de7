"""The options of `create_model`, for type checkers: `create_model("resnet20", shceme="lm")` is an error of mypy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from annotated_types import Ge, Le, MinLen

from stepnet.arguments import Count, CountFromZero, Positive, Probability, Seed
from stepnet.nets.blocks import Shortcut
from stepnet.nets.bounds import BoundOption
from stepnet.schemes import Scheme

StepSizes = Positive | Sequence[Sequence[Positive]]  # of all steps, or for each stage those of its steps
Depths = Annotated[Sequence[Count], MinLen(1)]  # blocks of each stage, one that changes the shape counted
Units = Annotated[int, Ge(1), Le(1000)]


class SteppedOptions(TypedDict, total=False):
    """Those of every network, and of one that is marched by a scheme, which may learn coefficients."""

    num_classes: CountFromZero
    in_channels: Count
    dt: StepSizes
    depths: Depths | None
    k: float | None
    k_per_channel: bool
    k_bound: BoundOption


class ResidualOptions(SteppedOptions, total=False):
    """Those of `ResidualNetwork`."""

    stochastic_depth: float | Mapping[str, Any] | None
    noise: str | Mapping[str, Any] | None


class RevNetOptions(SteppedOptions, total=False):
    """Those of `RevNet`."""

    scheme: str | Scheme


class ModelOptions(SteppedOptions, total=False):
    """Every option of some family. docs/networks.md lists which family has which; any other option is refused."""

    scheme: str | Scheme
    # residual networks
    stochastic_depth: float | Mapping[str, Any] | None
    noise: str | Mapping[str, Any] | None
    pre_activation: bool
    shortcut: Shortcut
    width: Count  # of the first stage of a CIFAR ResNet
    group_width: Count
    cardinality: Count
    # Shake-Shake
    forward: Literal["shake", "even"]
    backward: Literal["shake", "even", "keep"]
    level: Literal["batch", "image"]
    # FractalNet
    widths: Annotated[Sequence[Count], MinLen(1)] | None
    drop_path: Probability
    global_drop: Probability
    dropout: Probability
    seed: Seed
    convolutions: bool
    # DenseNet
    bottleneck: bool
    # GPT
    heads: Count | None
    context: Count
    positions: Literal["rotary", "learned"]
    patch: Count  # ViT
    # Very Deep PolyNet: units of each stage
    a: Units
    b: Units
    c: Units
