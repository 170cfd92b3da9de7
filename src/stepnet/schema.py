"""Plain values (of YAML, JSON, flags, callers) held to the types of a dataclass or TypedDict: one mechanism, msgspec's.

A type says everything: `Literal` the words, `Annotated[int, Meta(ge=1)]` the range. What does not fit is told in one
line that names the place and what was expected there.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from stepnet.errors import UserError, nearest
from stepnet.files import read_file

T = TypeVar("T")
LARGEST = 2**26  # bytes of the text files of a run


def read_yaml(path: Path, what: str) -> object:
    """What a YAML file holds; `what` opens the line for one that cannot be read.

    Aliases are refused: ten lines in which each list holds the one before ten times stand for ten thousand million
    values, and reading them all never ends.
    """
    text = read_file(path, LARGEST)  # what cannot be read at all says so itself
    try:
        return yaml.load(text, _WithoutAliases)
    except (UserError, ValueError, RecursionError, yaml.YAMLError) as error:
        told = str(error) if isinstance(error, UserError) else type(error).__name__
        raise UserError(f"{what} ({told})") from None


class _WithoutAliases(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise UserError("it holds an alias, *NAME: write its value out")
        return super().compose_node(parent, index)


def read_as(kind: type[T], values: object, what: str) -> T:
    """`values` as a `kind`, where missing fields take their defaults; `what` opens the line for those that are none."""
    try:
        if dataclasses.is_dataclass(kind):
            _check_names(kind, values)
        return msgspec.convert(values, kind)
    except (msgspec.ValidationError, UserError) as error:
        raise UserError(f"{what}: {_plain(str(error), values)}") from None


def check_fields(instance: Any) -> None:
    """Hold the fields of a dataclass to their types, for those who build one in Python."""
    hints = typing.get_type_hints(type(instance), include_extras=True)
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if dataclasses.is_dataclass(value):
            continue
        try:
            msgspec.convert(value, hints[field.name])
        except msgspec.ValidationError as error:
            raise UserError(f"{field.name} = {value!r}: {_plain(str(error))}") from None


def _check_names(kind: Any, values: object) -> None:
    """Refuse a field that a dataclass, or a dataclass in it, does not have."""
    if not isinstance(values, Mapping):
        return
    hints = typing.get_type_hints(kind)
    for name, value in values.items():
        if name not in hints:
            near = nearest(str(name), list(hints))
            raise UserError(f"unknown field {name!r}" + (f": {near}" if near else ""))
        if dataclasses.is_dataclass(hints[name]):
            _check_names(hints[name], value)


def _plain(message: str, values: object = None) -> str:
    """`Expected `int`, got `float` - at `$.recipe.epochs`` as a plain clause; a number out of range is told."""
    text, _, place = message.partition(" - at ")
    place = place.strip("`").removeprefix("$").lstrip(".")
    text = text[:1].lower() + text[1:].replace("`", "")
    for name in place.split("."):
        values = values.get(name) if isinstance(values, Mapping) else None
    told = f" = {values!r}" if isinstance(values, int | float) and " got " not in text else ""
    return f"{place}{told}: {text}" if place else text
