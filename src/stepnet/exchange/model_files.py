"""`stepnet.load` and `stepnet.save`: a network and its description, in one safetensors file.

A file holds the weights under the names of the network's own `state_dict`, and the description as JSON in its header.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from stepnet.arguments import checked
from stepnet.errors import UserError
from stepnet.exchange.model_description import (
    ModelDescription,
    Preprocessing,
    decode,
    describe_network,
    description_of,
    encode,
)
from stepnet.exchange.prediction import preprocess
from stepnet.exchange.rebuild import fill, fitted_options, rebuild
from stepnet.exchange.transformers_folder import is_converted, load_converted
from stepnet.files import LAST, MODEL, is_folder
from stepnet.nets import coefficients, list_models, pretrained_file, split_tag
from stepnet.tensors import Tensors, checksum, read_tensors, write_tensors

DESCRIPTION = "stepnet"  # the key of the header
HUB = "hf-hub:"  # before a name on the Hugging Face Hub, as timm spells it
RESUME, PREFIX = "stepnet checkpoint 1", "model."  # the format of a run's resume state, and of the weights in it

Location = str | os.PathLike[str]


class Opened(NamedTuple):
    """The content of a model file: the weights by name, and their description."""

    weights: Tensors
    description: ModelDescription


@checked
def load(where: Location, model: str | nn.Module | None = None, **options: Any) -> nn.Module:
    """Load a network from a file, a run's folder, the hub, or by the name of pretrained weights, in evaluation mode.

    `network.description` describes it; `network.preprocess(picture)` makes its input from a path, a PIL image or an
    array. For weights without a description, `model` is the name of their network, with options as in `create_model`;
    for a network that stepnet cannot build, `model` is the network, which gets the weights. A folder of transformers'
    `save_pretrained` gives a converted network with its `k`.
    """
    strange = options.keys() - {"example"}
    if strange and not isinstance(model, str):
        raise UserError(
            f"load takes no option {min(strange)!r} here: a file describes its network; options are for weights "
            "without a description, after model='NAME'"
        )
    if is_converted(Path(where)) and not isinstance(model, str):
        network = load_converted(Path(where), model, options.get("example"))
        return attach(network, describe_network(network))
    weights, description = read_model(where, model, options)
    if isinstance(model, nn.Module):
        return attach(fill(model, description, weights, where, options.get("example")), description)
    return attach(rebuild(description, weights, where), description)


@checked
def save(
    network: nn.Module,
    path: Location,
    *,
    classes: tuple[str, ...] | list[str] = (),
    preprocessing: Preprocessing | None = None,
    license: str = "",
) -> None:
    """Save a network so that `load` opens it without other files; raise if it could not be loaded again.

    Classes and preprocessing of a network that was loaded are kept, unless others are given.
    """
    target = Path(path)
    weights = {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
    before, made = description_of(network), describe_network(network)
    same = checksum(weights) == vars(network).get("_described_weights")
    made = replace(
        made,
        classes=before.classes if len(before.classes) == made.options.get("num_classes") else (),
        preprocessing=before.preprocessing,
        training=before.training if same else None,
        license=before.license,
    )
    changes: dict[str, Any] = {"classes": tuple(classes), "preprocessing": preprocessing, "license": license}
    made = replace(made, **{name: value for name, value in changes.items() if value})
    outputs = made.options.get("num_classes", len(made.classes))
    if made.classes and len(made.classes) != outputs:
        raise UserError(f"{len(made.classes)} classes for a network of {outputs}: expected a name for each")
    decode(encode(made), f"the description for {target}")
    if not made.built_elsewhere:
        rebuild(made, weights, f"what would stand in {target}")
    write_model(target, weights, made)


def write_model(path: Path, weights: Tensors, description: ModelDescription) -> None:
    """Write weights and their description."""
    write_tensors(path, weights, {"format": "pt", DESCRIPTION: encode(description)})


def read_model(where: Location, model: str | nn.Module | None = None, options: dict[str, Any] | None = None) -> Opened:
    """Read the weights of a file or a run, and their description."""
    path = file_of(where)
    tensors, header = read_tensors(path)
    weights = resumed_weights(tensors) if header.get("format") == RESUME else tensors
    if isinstance(model, str):
        return Opened(weights, ModelDescription(model=model, options=fitted_options(model, weights) | (options or {})))
    if DESCRIPTION in header:
        return Opened(weights, decode(header[DESCRIPTION], path))
    if model is not None:
        return Opened(weights, describe_network(model))
    raise UserError(
        f"{path} holds weights without a description of their network: name it, as in load(path, model='lm_resnet20')"
    )


def resumed_weights(tensors: Tensors) -> Tensors:
    """Return the network's weights from a run's resume state, which also holds the optimiser's."""
    return {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}


def attach(network: nn.Module, description: ModelDescription) -> nn.Module:
    """Attach the description and `preprocess` to a network."""
    description = replace(description, k=coefficients(network))
    network.description = description  # type: ignore[assignment]
    network._described_weights = checksum(network.state_dict())  # type: ignore[assignment]
    if description.preprocessing is not None:
        network.preprocess = partial(preprocess, description.preprocessing)  # type: ignore[assignment]
    return network


def file_of(place: Location) -> Path:
    """Resolve a location to a file: for a run, the network after its last complete epoch; for a name, its weights."""
    where = Path(place)
    if str(place).startswith(HUB):
        from stepnet.exchange.hub import download

        return download(str(place).removeprefix(HUB))
    if not os.path.exists(where) and split_tag(str(place))[0] in list_models():  # noqa: PTH110
        return pretrained_file(str(place))
    if not is_folder(where):
        return where
    for name in (MODEL, LAST):
        if (where / name).is_file():
            return where / name
    if (where / "config.yaml").exists():
        raise UserError(f"{where}: the run has no checkpoint yet; it writes one by the end of its first epoch")
    raise UserError(f"{where} is neither a run nor a model: it has neither {MODEL} nor config.yaml")
