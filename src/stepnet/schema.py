"""Validate YAML and JSON files against a dataclass or TypedDict with pydantic, as `arguments` does with calls.

The type defines what is valid: `Literal` the words, `Annotated[int, Ge(1)]` the range. An error is one line with the
field and what was expected.
"""

from __future__ import annotations

import functools
import json
import typing
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import yaml

from stepnet.arguments import expectation
from stepnet.errors import UserError, nearest
from stepnet.files import read_file

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")
Extra = Literal["ignore", "forbid"]  # fields that the type does not have
LARGEST = 2**26  # bytes of a text file of a run


def read_yaml(path: Path, what: str) -> object:
    """Read a YAML file; `what` begins the message if it is not valid YAML.

    Aliases are refused: with ten lines, each a list of ten references to the one before, a small file expands to ten
    thousand million values.
    """
    text = read_file(path, LARGEST)
    try:
        return yaml.load(text, _WithoutAliases)
    except (UserError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = str(error) if isinstance(error, UserError) else type(error).__name__
        raise UserError(f"{what} ({reason})") from None


class _WithoutAliases(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise UserError("it has an alias, *NAME: write out its value")
        return super().compose_node(parent, index)


def read_as(kind: type[T], values: object, what: str, extra: Extra = "ignore") -> T:
    """Convert `values` to a `kind`; missing fields take defaults. `what` begins the error message."""
    try:
        text = json.dumps(values)
    except (TypeError, ValueError, RecursionError) as error:  # a date in YAML, a list that contains itself
        raise UserError(f"{what}: {error}") from None
    return read_json(kind, text, what, extra)


def read_json(kind: type[T], text: str | bytes, what: str, extra: Extra = "ignore") -> T:
    """Convert untrusted JSON to a `kind`."""
    from pydantic import ValidationError

    try:
        return typing.cast(T, _adapter(typing.cast(Any, kind)).validate_json(text, strict=True, extra=extra))
    except ValidationError as error:
        raise UserError(f"{what}: {_plain(error, kind)}") from None


@functools.cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(typing.cast(Any, kind))


def _plain(error: ValidationError, kind: object) -> str:
    """Describe the first error: `recipe.epochs = 0: expected 1 or more`."""
    problem = error.errors(include_url=False)[0]
    path = problem["loc"]
    if problem["type"] == "unexpected_keyword_argument":
        for name in path[:-1]:
            kind = typing.get_type_hints(kind)[str(name)]
        near = nearest(path[-1], typing.get_type_hints(kind))
        return f"unknown field {path[-1]!r}" + (f": {near}" if near else "")
    if problem["type"] == "value_error":  # raised by __post_init__, with its own message
        return str(problem["ctx"]["error"])
    place = ".".join(map(str, path))
    if problem["type"] == "missing":
        return f"{place} is missing"
    return (f"{place} = " if place else "") + expectation([problem], problem["input"])
