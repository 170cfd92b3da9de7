"""Networks by name: `register_model`, `create_model`, `list_models`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, TypeVar

from stepnet.errors import UserError, unknown
from stepnet.nets.residual import Network

Build = TypeVar("Build", bound=Callable[..., Network])


@dataclass(frozen=True)
class Entry:
    """A registered network: how it is built and what the tables say of it."""

    name: str
    family: str
    scheme: str
    image_size: int
    num_classes: int
    build: Callable[..., Network]


_entries: dict[str, Entry] = {}


def register_model(
    name: str, *, family: str, scheme: str = "euler", image_size: int = 32, num_classes: int = 10
) -> Callable[[Build], Build]:
    """Decorator: make a function that builds a network known under `name`."""

    def register(build: Build) -> Build:
        if name in _entries:
            raise UserError(f"a model named {name!r} is registered already: choose another name")
        _entries[name] = Entry(name, family, scheme, image_size, num_classes, build)
        return build

    return register


def create_model(name: str, **options: Any) -> Network:
    """Build a network: `create_model("resnet20", scheme="lm", num_classes=10, in_channels=3)`.

    Options that only some families have, such as `stochastic_depth`, stand in docs/networks.md.
    """
    entry = model_entry(name)
    try:
        return entry.build(**{"num_classes": entry.num_classes, **options})
    except TypeError as error:
        refused = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if refused is None or refused[1] not in options:
            raise
        raise UserError(
            f"model {name!r} takes no option {refused[1]!r}: the family {entry.family!r} has none; see docs/networks.md"
        ) from None


def list_models(pattern: str = "*") -> list[str]:
    """The names that match a shell pattern."""
    return [name for name in _entries if fnmatch(name, pattern)]


def model_entry(name: str) -> Entry:
    """What is registered under `name`; the nearest names when there is none."""
    if name not in _entries:
        raise unknown("model", name, _entries)
    return _entries[name]
