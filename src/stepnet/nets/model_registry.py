"""Networks by name: `register_model`, `create_model`, `list_models`.

Also: how a network was built, which files record; timm's `features_only`; the weights that come with the package.
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
from stepnet.nets.network import FeatureInfo, Network
from stepnet.nets.options import ModelOptions
from stepnet.nets.weights import load_weights, shape_of
from stepnet.registry import Registry, build
from stepnet.tensors import read_tensors

Builder = TypeVar("Builder", bound=Callable[..., Network])


@dataclass(frozen=True)
class ModelEntry:
    """A registered network: its builder and its defaults."""

    name: str
    family: str
    scheme: str
    image_size: int
    num_classes: int
    build: Callable[..., Network]
    takes: Literal["images", "tokens"] = "images"


MODELS: Registry[ModelEntry] = Registry("model")


@checked
def register_model(
    name: str, *, family: str, scheme: str = "euler", image_size: Count = 32, num_classes: Count = 10
) -> Callable[[Builder], Builder]:
    """Decorator: register a function that builds a network under `name`."""

    def register(builder: Builder) -> Builder:
        MODELS.add(name, ModelEntry(name, family, scheme, image_size, num_classes, builder))
        return builder

    return register


@checked
def register_family(
    pattern: str, *, example: str, family: str, num_classes: Count = 10, takes: Literal["images", "tokens"] = "images"
) -> Callable[[Builder], Builder]:
    """Decorator: register every name that matches `pattern`, built from the numbers in the pattern's groups.

    `list_models` does not list these names, of which there is no end: `example` is one of them.
    """

    def register(builder: Builder) -> Builder:
        size = 32 if takes == "images" else 64  # pixels, or tokens
        entry = ModelEntry(example, family, "euler", size, num_classes, builder, takes)

        def member(match: re.Match[str]) -> ModelEntry:
            return dataclasses.replace(entry, name=match[0], build=partial(builder, *map(int, match.groups())))

        MODELS.add_family(example, pattern, member)
        return builder

    return register


@overload
def create_model(
    name: str, pretrained: bool = False, *, features_only: Literal[False] = False, **options: Unpack[ModelOptions]
) -> Network: ...
@overload
def create_model(
    name: str, pretrained: bool = False, *, features_only: Literal[True], **options: Unpack[ModelOptions]
) -> FeatureList: ...
@checked
def create_model(
    name: str, pretrained: bool = False, *, features_only: bool = False, **options: Unpack[ModelOptions]
) -> Network | FeatureList:
    """Build a network: `create_model("resnet20", scheme="lm", num_classes=10, in_channels=3)`.

    Some options, such as `stochastic_depth`, exist in some families only. `pretrained` loads weights that come with the
    package, those of a tag if the name has one (`lm_resnet20.cifar10`). They determine the default number of classes
    and channels; for another number of classes, the classifier is new. `memory` is what a training step saves for its
    backward pass (default: that of the family). `in_chans` and `features_only` are timm's: the number of input
    channels, and a network that returns the list of its stages' last states.
    """
    memory, in_chans = options.pop("memory", None), options.pop("in_chans", None)
    if in_chans is not None and options.setdefault("in_channels", in_chans) != in_chans:
        raise UserError(f"in_chans = {in_chans} and in_channels = {options['in_channels']}: give one of them")
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
    """Return the names that match a shell pattern."""
    return MODELS.names(pattern)


@checked
def model_entry(name: str) -> ModelEntry:
    """Return the entry of `name`, registered or a member of a family; raise with the nearest names if there is none."""
    model, colon, scheme = name.partition(":")
    if colon and name not in MODELS and MODELS[model]:
        raise UserError(f"unknown model {name!r}: give the scheme by itself, as in {model!r}, scheme={scheme!r}")
    return MODELS[name]


ATTRIBUTE = "step_origin"
Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Origin:
    """The name and the options with which a network was built."""

    name: str
    options: Mapping[str, Any]

    def options_now(self, network: nn.Module) -> dict[str, Any]:
        """Return the options with later changes, such as the classes of `reset_classifier`."""
        now = {name: getattr(network, name, None) for name in ("num_classes", "in_channels")}
        return {**self.options, **{name: value for name, value in now.items() if isinstance(value, int)}}


def remember_origin(network: Model, name: str, options: Mapping[str, Any]) -> Model:
    """Attach to a network how it was built."""
    setattr(network, ATTRIBUTE, Origin(name, dict(options)))
    return network


def origin_of(network: nn.Module) -> Origin | None:
    """Return how the network was built, or None if unknown."""
    origin = getattr(network, ATTRIBUTE, None)
    return origin if isinstance(origin, Origin) else None


class FeatureList(nn.Module):
    """timm's `features_only`: return the list of the stages' last states `u_N`.

    The layers after the last stage are not used: the classifier is removed (unless it is the embedding, too), and the
    last norm requires no gradient.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.feature_info: list[FeatureInfo] = network.chosen_features()
        if not getattr(network, "tied_embedding", False):
            network.reset_classifier(0)
        if isinstance(norm := getattr(network, "norm", None), nn.Module):
            norm.requires_grad_(False)
        self.network = network

    def forward(self, x: Tensor) -> list[Tensor]:
        return cast(list[Tensor], self.network.forward_intermediates(x, intermediates_only=True))


WEIGHTS = Path(__file__).parent.parent / "weights"
TAGS = ("imagenet", "cifar100", "cifar10", "digits")  # in order of preference for a name without a tag


def split_tag(name: str) -> tuple[str, str | None]:
    """`lm_resnet20.cifar10` -> (`lm_resnet20`, `cifar10`)."""
    model, _, tag = name.partition(".")
    return model, tag or None


def list_pretrained() -> list[str]:
    """Return the names, with their tags, whose weights come with the package."""
    return sorted(path.stem for path in WEIGHTS.glob("*.safetensors"))


def pretrained_file(name: str) -> Path:
    """Return the file with the weights of `NAME.TAG`, or of `NAME` with its preferred tag."""
    model, tag = split_tag(name)
    tags = [known.partition(".")[2] for known in list_pretrained() if known.partition(".")[0] == model]
    if tag is None and tags:
        tag = next((preferred for preferred in TAGS if preferred in tags), tags[0])
    if tag not in tags:
        if tags:
            raise unknown(f"weights of {model}", tag, tags)
        available = ", ".join(list_pretrained()) or "none"
        raise UserError(f"{name}: stepnet has no trained weights of this name; available: {available}")
    return WEIGHTS / f"{model}.{tag}.safetensors"
