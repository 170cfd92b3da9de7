"""Where a block has its state: which argument, which output, and which entry of a tuple or dict."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor, nn

from stepnet.schemes import is_tensor

Path: TypeAlias = "tuple[int | str, ...]"  # keys into tuples, lists and dicts; the value itself is at ()
FIRST: Path = (0,)
Arguments: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any]]"


class Argument(NamedTuple):
    """An argument of a block by position and by name, and the path inside of it."""

    position: int | None  # None: by name only
    name: str
    path: Path = ()

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
        """Return its value in a call."""
        position, name, path = self
        value: Any = args[position] if position is not None and position < len(args) else kwargs[name]
        state: Tensor = entry(value, path) if path else value
        return state

    def put(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Tensor | None) -> Arguments:
        """Return the arguments of a call with another value for it."""
        if self._by_position(args):
            return with_entry(args, (self.position, *self.path), value), dict(kwargs)  # type: ignore[arg-type]
        return args, with_entry(dict(kwargs), (self.name, *self.path), value)

    def _by_position(self, args: tuple[Any, ...]) -> bool:
        return self.position is not None and self.position < len(args)


def tensor_arguments(block: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Argument]:
    """Return the floating-point tensors among the arguments of a call, in the order of the parameters."""
    names = list(inspect.signature(block.forward).parameters)
    for position, value in enumerate(args):
        for path in tensor_entries(value):
            yield Argument(position, names[position] if position < len(names) else "", path)
    for name in sorted(kwargs, key=lambda name: names.index(name) if name in names else len(names)):
        for path in tensor_entries(kwargs[name]):
            yield Argument(names.index(name) if name in names else None, name, path)


def tensor_entries(value: Any) -> Iterator[Path]:
    """Return the paths of floating-point tensors: the value itself, or entries of a tuple, list or dict."""
    if isinstance(value, Tensor):
        entries: Any = [((), value)]
    elif isinstance(value, dict):
        entries = [((key,), each) for key, each in value.items()]
    else:
        entries = [((n,), each) for n, each in enumerate(value)] if isinstance(value, tuple | list) else []
    for path, each in entries:
        if isinstance(each, Tensor) and each.is_floating_point():
            yield path


def entry(value: Any, path: Path) -> Any:
    """Return the entry at a path."""
    for key in path:
        value = value[key]
    return value


def with_entry(value: Any, path: Path, new: Any) -> Any:
    """Return a copy of the containers along a path, with another entry at its end."""
    if not path:
        return new
    key, rest = path[0], path[1:]
    if isinstance(value, dict):
        changed = copy.copy(value)
        changed[key] = with_entry(value[key], rest, new)
        return changed
    items = [with_entry(each, rest, new) if n == key else each for n, each in enumerate(value)]
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def state_in(output: Any, path: Path = FIRST) -> Tensor:
    """Return the state among a block's outputs; an output that is a tensor is the state."""
    state: Tensor = output if is_tensor(output) else entry(output, path)
    return state


def with_state(output: Any, state: Tensor, path: Path = FIRST) -> Any:
    """Return the block's outputs with another state."""
    return state if is_tensor(output) else with_entry(output, path, state)
