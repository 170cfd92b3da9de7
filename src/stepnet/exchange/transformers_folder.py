"""Folders that transformers' `save_pretrained` wrote of a converted network.

The conversion stands in `config.json`. `from_pretrained` knows nothing of it and would leave the trained `k` out, so
the network is loaded by transformers, converted again, and given what the conversion added.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from torch import nn

from stepnet.conversion.record import RECORD
from stepnet.errors import UserError, first_line
from stepnet.exchange.model_description import ConversionRecord
from stepnet.exchange.rebuild import check_finite, restore_conversion
from stepnet.extras import import_extra
from stepnet.files import read_file
from stepnet.tensors import read_tensors

LARGEST_CONFIG = 2**24  # bytes


def is_converted(folder: Path) -> bool:
    """Whether a folder holds a converted network of transformers."""
    path = folder / "config.json"
    return path.is_file() and RECORD in read_file(path, LARGEST_CONFIG).decode("utf-8", "replace")


def load_converted(folder: Path, model: nn.Module | None = None, example: Any = None) -> nn.Module:
    """The network with the scheme and the `k` that it was saved with.

    `model` is what `from_pretrained` gave, if it was not what `config.json` names; `example` is for `convert`.
    """
    config, conversion = _config(folder / "config.json")
    network = _from_pretrained(config, folder) if model is None else model
    plain = set(network.state_dict())
    restore_conversion(network, conversion, example)
    added = set(network.state_dict()) - plain
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors, _ = read_tensors(path)
        found.update({name: tensor for name, tensor in tensors.items() if name in added})
    if missing := sorted(added - set(found)):
        raise UserError(f"{folder} is converted, and its weights lack {missing[0]!r}")
    network.load_state_dict(found, strict=False)
    check_finite(network.state_dict(), folder)
    return network.eval()


def _config(path: Path) -> tuple[dict[str, Any], ConversionRecord]:
    try:
        config = json.loads(read_file(path, LARGEST_CONFIG))
        return config, msgspec.convert(config[RECORD], ConversionRecord)
    except (ValueError, TypeError, LookupError, RecursionError, msgspec.ValidationError) as error:
        raise UserError(f"{path} does not say how the network was converted ({first_line(error)})") from None


def _from_pretrained(config: dict[str, Any], folder: Path) -> nn.Module:
    """By the class that the configuration names, if it is one of transformers' own networks."""
    library = import_extra("transformers")
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    kind = getattr(library, name, None)
    if not (isinstance(kind, type) and issubclass(kind, library.PreTrainedModel)):
        raise UserError(f"{folder}: {name!r} is no network of transformers; load it yourself: load(folder, model=…)")
    verbosity = library.logging.get_verbosity()
    library.logging.set_verbosity_error()  # it lists every k as unexpected
    try:
        network: nn.Module = kind.from_pretrained(folder)  # type: ignore[attr-defined]
        return network
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{folder}: transformers cannot load it ({first_line(error)})") from None
    finally:
        library.logging.set_verbosity(verbosity)
