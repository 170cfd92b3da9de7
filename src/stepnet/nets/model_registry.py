"""Networks by name: `register_model`, `create_model`, `list_models`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar, Unpack, overload

import torch

from stepnet.arguments import checked
from stepnet.errors import UserError
from stepnet.nets.features import FeatureList
from stepnet.nets.memory_modes import Memory
from stepnet.nets.options import ModelOptions
from stepnet.nets.origin import remember_origin
from stepnet.nets.pretrained import pretrained_file, split_tag
from stepnet.nets.residual import Network
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


MODELS: Registry[ModelEntry] = Registry("model")


@checked
def register_model(
    name: str, *, family: str, scheme: str = "euler", image_size: int = 32, num_classes: int = 10
) -> Callable[[Builder], Builder]:
    """Decorator: make a function that builds a network known under `name`."""

    def register(builder: Builder) -> Builder:
        MODELS.add(name, ModelEntry(name, family, scheme, image_size, num_classes, builder))
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


def model_entry(name: str) -> ModelEntry:
    """What is registered under `name`; the nearest names when there is none."""
    return MODELS[name]
