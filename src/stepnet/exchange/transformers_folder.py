"""Folders of converted networks that transformers' `save_pretrained` wrote.

The conversion is recorded in `config.json`. `from_pretrained` ignores it and would drop the trained `k`, so the network
is loaded by transformers, converted again, and given the parameters that the conversion added.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from stepnet.conversion import RECORD
from stepnet.errors import UserError, first_line
from stepnet.exchange.model_description import LARGEST_SIDE, ConversionRecord, read_record
from stepnet.exchange.rebuild import at_most, check_finite, restore_conversion
from stepnet.extras import import_extra
from stepnet.files import read_file
from stepnet.tensors import Tensors, read_tensors

LARGEST_CONFIG = 2**24  # bytes
LARGEST_NUMBER = 2**24  # of layers, channels, tokens
# Families whose configurations hold numbers only; those of others may name files, addresses and code.
FAMILIES = """
    albert beit bert bloom convnext convnextv2 deit dinov2 distilbert electra falcon gemma gemma2 gpt2
    gpt_neo gpt_neox llama mistral mobilenet_v2 mpt olmo opt phi qwen2 qwen3 regnet resnet roberta
    stablelm swin vit
"""


def is_converted(folder: Path) -> bool:
    """Whether a folder holds a converted network of transformers."""
    path = folder / "config.json"
    return path.is_file() and RECORD in read_file(path, LARGEST_CONFIG).decode("utf-8", "replace")


def load_converted(folder: Path, model: nn.Module | None = None, example: Any = None) -> nn.Module:
    """Return the network with the scheme and the `k` that it was saved with.

    `model` is a network from `from_pretrained`, instead of the one `config.json` names; `example` is for `convert`.
    """
    config, conversion = _config(folder / "config.json")
    weights: Tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        weights.update(read_tensors(path)[0])
    network = _from_pretrained(config, weights, folder) if model is None else model
    plain = set(network.state_dict())
    try:
        restore_conversion(network, conversion, example)
    except UserError as error:
        raise UserError(f"{folder} cannot be converted again: {error}") from None
    added = set(network.state_dict()) - plain
    if missing := sorted(added - set(weights)):
        raise UserError(f"{folder} is converted, and its weights lack {missing[0]!r}")
    network.load_state_dict({name: weights[name] for name in added}, strict=False)
    check_finite(network.state_dict(), folder)
    return network.eval()


def _config(path: Path) -> tuple[dict[str, Any], ConversionRecord]:
    try:
        config = json.loads(read_file(path, LARGEST_CONFIG))
        return config, read_record(config[RECORD])
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise UserError(f"{path} does not say how the network was converted ({first_line(error)})") from None


def _from_pretrained(values: dict[str, Any], weights: Tensors, folder: Path) -> nn.Module:
    """Load by the class that the configuration names, if its family is one of `FAMILIES`.

    It is first built on the meta device, as in `rebuild`, to compare an untrusted configuration with the weights before
    memory is allocated.
    """
    library = import_extra("transformers")
    names = values.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    named = getattr(library, name, None)
    if not (isinstance(named, type) and issubclass(named, library.PreTrainedModel)):
        raise UserError(f"{folder}: {name!r} is not a network of transformers; load it yourself: load(folder, model=…)")
    kind: Any = named
    if (
        kind.config_class is None
        or kind.config_class.model_type not in FAMILIES.split()
        or (folder / "adapter_config.json").exists()
    ):
        raise UserError(
            f"{folder}: {name!r} may fetch other files; if you trust it, load it yourself and pass it: "
            "load(folder, model=network)"
        )
    verbosity = library.logging.get_verbosity()
    library.logging.set_verbosity_error()  # it lists every k as unexpected
    try:
        config = kind.config_class.from_dict(_plain(values, kind.config_class().to_dict()))
        with torch.device("meta"), at_most(len(weights)):
            outline = kind(config).state_dict()
        if wrong := [key for key, each in outline.items() if key in weights and each.shape != weights[key].shape]:
            raise UserError(
                f"{wrong[0]!r} is {list(weights[wrong[0]].shape)}, expected {list(outline[wrong[0]].shape)}"
            )
        network, loading = kind.from_pretrained(
            folder, config=config, use_safetensors=True, local_files_only=True, output_loading_info=True
        )
        if loading["missing_keys"]:
            raise UserError(f"its weights lack {min(loading['missing_keys'])!r}")
    except Exception as error:  # transformers may raise anything for an untrusted configuration
        raise UserError(f"{folder}: transformers cannot load it ({first_line(error)})") from None
    finally:
        library.logging.set_verbosity(verbosity)
    return cast(nn.Module, network)


def _plain(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that the class itself defines, without `auto_map`, `quantization_config` and the like."""
    kept = {key: value for key, value in values.items() if key in defaults or key == "torch_dtype"}
    for key, value in kept.items():
        most = LARGEST_SIDE if key == "image_size" else LARGEST_NUMBER
        numbers = value if isinstance(value, list) else [value]
        if isinstance(defaults.get(key), int | list) and any(isinstance(n, int) and n > most for n in numbers):
            raise UserError(f"{key} = {value}: expected at most {most}")
    return kept
