"""The description of a model in its file: how to build it, its preprocessing, and its measured errors."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Le
from torch import nn

import stepnet
from stepnet.arguments import checked
from stepnet.conversion import RECORD
from stepnet.errors import UserError, first_line
from stepnet.nets import coefficients, origin_of
from stepnet.schema import read_as, read_json
from stepnet.schemes import Scheme, get_scheme

Epochs = Annotated[int, Ge(0), Le(1_000_000)]
LARGEST_SIDE = 4096  # pixels: a network is converted again on an image of that size
Side = Annotated[int, Ge(1), Le(LARGEST_SIDE)]
Percent = Annotated[float, Ge(0), Le(100)]


@dataclass(frozen=True, kw_only=True)
class ConversionRecord:
    """The scheme that `convert` put into a network of another library, and where."""

    scheme: str
    stages: tuple[tuple[str, ...], ...]  # the names of the blocks that became steps, row by row
    split: tuple[str, ...] | None = None  # blocks whose branch, shortcut and activation were known
    blocks: tuple[str, ...] | None = None  # the patterns by which they were chosen, if any
    k_bound: tuple[float, float] | None = None
    dt: float | tuple[tuple[float, ...], ...] = 1  # the weight of f, or for each row those of its steps
    layout: dict[str, tuple[int, ...]] = field(default_factory=dict)  # the entries of module lists, at another depth
    stochastic_depth: dict[str, int | float | str] | None = None  # the options of `StochasticDepth`


@checked
@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Preprocessing of images: shorter side to `resize`, centre crop of `image_size`, (x - mean) / std."""

    channels: Side
    image_size: Side
    resize: Side
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != self.channels or len(self.std) != self.channels or min(self.std) <= 0:
            raise UserError(f"mean and std {self.mean}, {self.std}: expected {self.channels} values, std above 0")
        if self.resize < self.image_size:
            raise UserError(f"resize = {self.resize}: expected at least the {self.image_size} pixels that are cut out")


@dataclass(frozen=True, kw_only=True)
class TrainingRecord:
    """How the weights were trained."""

    data: str
    val_share: float | None = None  # of a folder without images for validation
    epochs: Epochs
    recipe: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    task: str = "classification"
    tested: dict[str, float] = field(default_factory=dict)  # other metrics on the test set
    test_error: Percent | None = None
    top5_error: Percent | None = None
    command: str = ""
    revision: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """The description in the header of a model file."""

    model: str  # a name of `create_model`, or timm/NAME, torchvision/NAME; a class, if `built_elsewhere`
    built_elsewhere: bool = False  # not by stepnet: `load` needs the network as an argument
    options: dict[str, Any] = field(default_factory=dict)  # with which it was created
    conversion: ConversionRecord | None = None
    classes: tuple[str, ...] = ()
    preprocessing: Preprocessing | None = None
    training: TrainingRecord | None = None
    k: dict[str, float | list[float]] = field(default_factory=dict)
    license: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def scheme(self) -> str | None:
        """The scheme, if it is not the model's default."""
        return self.conversion.scheme if self.conversion else self.options.get("scheme")


def describe_network(
    network: nn.Module,
    classes: Sequence[str] = (),
    preprocessing: Preprocessing | None = None,
    training: TrainingRecord | None = None,
) -> ModelDescription:
    """Describe a network; `load` can build it again if `create_model` or `load_foreign` built it."""
    origin, record = origin_of(network), getattr(network, RECORD, None)
    if origin is None:
        cls = getattr(network, "original", type(network))  # a converted block has a subclass of its own
        model, options = f"{cls.__module__}.{cls.__qualname__}", {}
    else:
        model, options = origin.name, plain_options(origin.name, origin.options_now(network))
    return ModelDescription(
        model=model,
        built_elsewhere=origin is None,
        options=options,
        conversion=None if record is None else read_record(record),
        classes=tuple(classes),
        preprocessing=preprocessing,
        training=training,
        k=coefficients(network),
        versions=versions(),
    )


def description_of(network: nn.Module) -> ModelDescription:
    """Return the description that a network was loaded with, or describe it anew."""
    description = getattr(network, "description", None)
    return description if isinstance(description, ModelDescription) else describe_network(network)


def read_record(record: object) -> ConversionRecord:
    """Return the record that `convert` keeps with a network."""
    return read_as(ConversionRecord, record, "the record of its conversion")


def plain_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return options of `create_model` as JSON values; raise for values that JSON cannot hold."""
    plain = {key: value for key, value in options.items() if value is not None}
    scheme = plain.get("scheme")
    if isinstance(scheme, Scheme):
        plain["scheme"] = scheme.name
        if not scheme.trainable and not _same(get_scheme(scheme.name), scheme):  # a trained k is in the weights
            raise UserError(
                f"{name} has the scheme {scheme}, which its name {scheme.name!r} does not build: register it"
            )
    try:
        return dict(json.loads(json.dumps(plain)))
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: its options cannot be written into a file ({first_line(error)})") from None


def _same(one: Any, other: Any) -> bool:
    """Whether two schemes, or attributes of them, are equal; `start` is a scheme within a scheme."""
    if isinstance(one, Scheme):
        names = vars(one).keys() | vars(other).keys()
        return type(one) is type(other) and all(_same(getattr(one, n, None), getattr(other, n, None)) for n in names)
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else bool(one == other)


def encode(description: ModelDescription) -> str:
    """Encode a description as JSON."""
    return json.dumps(dataclasses.asdict(description))


def decode(text: str | bytes, where: object) -> ModelDescription:
    """Decode a description from untrusted JSON."""
    return read_json(ModelDescription, text, f"{where} is damaged: its description cannot be read")


def versions() -> dict[str, str]:
    """Return the versions of the libraries that matter to a reader of the file."""
    return {"stepnet": stepnet.__version__, "torch": str(torch.__version__), "python": platform.python_version()}
