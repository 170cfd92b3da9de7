"""Networks by name: `register_model`, `create_model`, `list_models`.

Below: how a network was built, which a file needs to build it again; its features alone; the weights that come with the
package.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack, cast, overload

import torch
from torch import Tensor, nn

from stepnet.arguments import Count, checked
from stepnet.errors import UserError, unknown
from stepnet.nets.memory_modes import Memory
from stepnet.nets.options import ModelOptions
from stepnet.nets.residual import FeatureInfo, Network
from stepnet.nets.weights import load_weights, shape_of
from stepnet.registry import Registry, build
from stepnet.tensors import read_tensors

Builder = TypeVar("Builder", bound=Callable[..., Network])


@dataclass(frozen=True)
class ModelEntry:
    """A registered network: how it is built and what the tables say of it."""

    name: str
    family: str
    scheme: str
    image_size: int
    num_classes: int
    build: Callable[..., Network]
    takes: Literal["images", "tokens"] = "images"


MODELS: Registry[ModelEntry] = Registry("model")
FAMILIES: dict[str, tuple[re.Pattern[str], ModelEntry]] = {}  # networks of any size, by the name of one of them


@checked
def register_model(
    name: str, *, family: str, scheme: str = "euler", image_size: Count = 32, num_classes: Count = 10
) -> Callable[[Builder], Builder]:
    """Decorator: make a function that builds a network known under `name`."""

    def register(builder: Builder) -> Builder:
        MODELS.add(name, ModelEntry(name, family, scheme, image_size, num_classes, builder))
        return builder

    return register


@checked
def register_family(
    pattern: str, *, example: str, family: str, num_classes: Count = 10, takes: Literal["images", "tokens"] = "images"
) -> Callable[[Builder], Builder]:
    """Decorator: make every name that matches `pattern` a network, built from the numbers in the pattern's groups.

    `list_models` lists names, and there are endlessly many of these: `example` is one of them.
    """

    def register(builder: Builder) -> Builder:
        size = 32 if takes == "images" else 64  # pixels, or tokens
        FAMILIES[example] = re.compile(pattern), ModelEntry(example, family, "euler", size, num_classes, builder, takes)
        return builder

    return register


@overload
def create_model(
    name: str,
    pretrained: bool = False,
    *,
    memory: Memory | None = None,
    in_chans: int | None = None,
    features_only: Literal[False] = False,
    **options: Unpack[ModelOptions],
) -> Network: ...
@overload
def create_model(
    name: str,
    pretrained: bool = False,
    *,
    memory: Memory | None = None,
    in_chans: int | None = None,
    features_only: Literal[True],
    **options: Unpack[ModelOptions],
) -> FeatureList: ...
@checked
def create_model(
    name: str,
    pretrained: bool = False,
    *,
    memory: Memory | None = None,
    in_chans: int | None = None,
    features_only: bool = False,
    **options: Unpack[ModelOptions],
) -> Network | FeatureList:
    """Build a network: `create_model("resnet20", scheme="lm", num_classes=10, in_channels=3)`.

    Some options, such as `stochastic_depth`, only some families have. `pretrained` fills it with weights that come with
    the package, those of a tag where the name has one (`lm_resnet20.cifar10`): classes and channels are then theirs
    unless given, and for another number of classes the classifier is a new one. `memory` says what a training step
    keeps for its backward pass, by default as the family has it. `in_chans` is timm's word for `in_channels`; with its
    `features_only` the network gives the list of its stages' last states.
    """
    if in_chans is not None and options.setdefault("in_channels", in_chans) != in_chans:
        raise UserError(
            f"in_chans = {in_chans} and in_channels = {options['in_channels']}: give one, they are the same"
        )
    model, _ = split_tag(name)
    entry = model_entry(model)
    defaults = {"num_classes": entry.num_classes}
    if pretrained:
        weights, _ = read_tensors(pretrained_file(name))
        with torch.device("meta"):
            defaults |= shape_of(weights, entry.build())
    network = build(f"model {model!r}", entry.build, {**defaults, **options})
    if pretrained:
        load_weights(network, weights, new_head=True, where=f"the weights of {name}")
    if memory is not None:
        network.set_memory(memory)
    remember_origin(network, model, options if memory is None else {**options, "memory": memory})
    return FeatureList(network) if features_only else network


@checked
def list_models(pattern: str = "*") -> list[str]:
    """The names that match a shell pattern."""
    return MODELS.names(pattern)


@checked
def model_entry(name: str) -> ModelEntry:
    """What is registered under `name`, or the member of a family; the nearest names when there is none."""
    for pattern, family in FAMILIES.values():
        if name not in MODELS and (member := pattern.fullmatch(name)):
            sizes = map(int, member.groups())
            return dataclasses.replace(family, name=name, build=partial(family.build, *sizes))
    if name not in MODELS:
        raise unknown("model", name, {*MODELS, *MODELS.aliases, *FAMILIES})
    return MODELS[name]


ATTRIBUTE = "step_origin"
Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Origin:
    """A name and the options that were given with it."""

    name: str
    options: Mapping[str, Any]

    def options_now(self, network: nn.Module) -> dict[str, Any]:
        """The options with what was changed since: `reset_classifier` gives a network other classes."""
        now = {name: getattr(network, name, None) for name in ("num_classes", "in_channels")}
        return {**self.options, **{name: value for name, value in now.items() if isinstance(value, int)}}


def remember_origin(network: Model, name: str, options: Mapping[str, Any]) -> Model:
    """Attach to a network how it was built."""
    setattr(network, ATTRIBUTE, Origin(name, dict(options)))
    return network


def origin_of(network: nn.Module) -> Origin | None:
    """Return how the network was built, or None if it does not say."""
    origin = getattr(network, ATTRIBUTE, None)
    return origin if isinstance(origin, Origin) else None


class FeatureList(nn.Module):
    """timm's `features_only`: called with images, it gives the list of the stages' last states `u_N`.

    What comes after the last stage has no part in them, so the classifier goes and the last norm gets no gradient.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.feature_info: list[FeatureInfo] = network.chosen_features()
        network.reset_classifier(0)
        if isinstance(norm := getattr(network, "norm", None), nn.Module):
            norm.requires_grad_(False)
        self.network = network

    def forward(self, x: Tensor) -> list[Tensor]:
        return cast(list[Tensor], self.network.forward_intermediates(x, intermediates_only=True))


WEIGHTS = Path(__file__).parent.parent / "weights"
TAGS = ("imagenet", "cifar100", "cifar10", "digits")  # whose weights are taken where a name has several and no tag


def split_tag(name: str) -> tuple[str, str | None]:
    """`lm_resnet20.cifar10` -> (`lm_resnet20`, `cifar10`)."""
    model, _, tag = name.partition(".")
    return model, tag or None


def list_pretrained() -> list[str]:
    """The names, with their tags, for which weights are here."""
    return sorted(path.stem for path in WEIGHTS.glob("*.safetensors"))


def pretrained_file(name: str) -> Path:
    """The weights of `NAME.TAG`, or of `NAME` with its first tag."""
    model, tag = split_tag(name)
    tags = [known.partition(".")[2] for known in list_pretrained() if known.partition(".")[0] == model]
    if tag is None and tags:
        tag = next((preferred for preferred in TAGS if preferred in tags), tags[0])
    if tag not in tags:
        if tags:
            raise unknown(f"weights of {model}", tag, tags)
        held = ", ".join(list_pretrained()) or "none"
        raise UserError(f"{name}: no trained weights come with stepnet under this name; there are: {held}")
    return WEIGHTS / f"{model}.{tag}.safetensors"
