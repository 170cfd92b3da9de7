"""The options of `create_model`, for type checkers: `create_model("resnet20", shceme="lm")` is an error of mypy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from stepnet.nets.blocks import Shortcut
from stepnet.nets.bounds import BoundOption
from stepnet.schemes import Scheme


class SteppedOptions(TypedDict, total=False):
    """Those of every network, and of one that is marched by a scheme, which may learn coefficients."""

    num_classes: int
    in_channels: int
    dt: float
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
    group_width: int
    cardinality: int
    # Shake-Shake
    forward: Literal["shake", "even"]
    backward: Literal["shake", "even", "keep"]
    level: Literal["batch", "image"]
    # FractalNet
    widths: Sequence[int] | None
    drop_path: float
    global_drop: float
    dropout: float
    seed: int
    convolutions: bool
    # DenseNet
    bottleneck: bool
    # Very Deep PolyNet: units of each stage
    a: int
    b: int
    c: int
