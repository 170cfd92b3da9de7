"""The options of `create_model`, for type checkers: `create_model("resnet20", shceme="lm")` is an error of mypy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from annotated_types import Ge, Le, MinLen

from stepnet.arguments import Count, CountFromZero, Positive, Probability, Seed
from stepnet.nets.blocks import Shortcut
from stepnet.nets.bounds import BoundOption
from stepnet.nets.march import Memory
from stepnet.schemes import Scheme

StepSizes = Positive | Sequence[Sequence[Positive]]  # one for all steps, or a list for each stage
Depths = Annotated[Sequence[Count], MinLen(1)]  # blocks of each stage, including the one that changes the shape
Units = Annotated[int, Ge(1), Le(1000)]


class BackboneOptions(TypedDict, total=False):
    """The options of every `BackboneNetwork`."""

    num_classes: CountFromZero
    in_channels: Count
    dt: StepSizes
    depths: Depths | None
    k: float | None
    k_per_channel: bool
    k_bound: BoundOption


class ResidualOptions(BackboneOptions, total=False):
    """The options of `ResidualNetwork`, without its scheme."""

    stochastic_depth: float | Mapping[str, Any] | None
    noise: str | Mapping[str, Any] | None


class RevNetOptions(BackboneOptions, total=False):
    """The options of `RevNet`."""

    scheme: str | Scheme


class ModelOptions(ResidualOptions, total=False):
    """The options of `create_model`, and those of the families: docs/networks.md lists which family has which."""

    memory: Memory | None
    in_chans: int | None
    scheme: str | Scheme
    # residual networks
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
