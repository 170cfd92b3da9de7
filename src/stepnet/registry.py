"""The registry of schemes, models, data sets, noises, recipes and tasks by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from functools import partial
from typing import Generic, TypeVar, get_type_hints

from stepnet.errors import UserError, nearest, unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """Values of one kind by name and alias; `registry[name]` raises with the nearest names if there is none."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # what messages call it: "scheme"
        self.entries: dict[str, T] = {}
        self.aliases: dict[str, str] = {}

    def add(self, name: str, value: T, aliases: Iterable[str] = ()) -> T:
        """Register a value under `name` and its aliases; raise if a name is taken."""
        aliases = tuple(aliases)
        for taken in (name, *aliases):
            if taken in self:
                raise UserError(f"{self.kind} {taken!r} is registered already: choose another name")
        self.entries[name] = value
        self.aliases.update(dict.fromkeys(aliases, name))
        return value

    def names(self, pattern: str = "*") -> list[str]:
        """Return the names that match a shell pattern, in order of registration."""
        return [name for name in self if fnmatch(name, pattern)]

    def canonical(self, name: str) -> str:
        """Return the name that an alias stands for."""
        return self.aliases.get(name, name)

    def aliases_of(self, name: str) -> list[str]:
        """Return the aliases of an entry."""
        return [alias for alias, canonical in self.aliases.items() if canonical == name]

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise unknown(self.kind, name, {*self.entries, *self.aliases})
        return self.entries[self.canonical(name)]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.canonical(name) in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def build(what: str, factory: Callable[..., T], options: dict[str, object]) -> T:
    """Call `factory(**options)`; raise `UserError` for an option that it does not have."""
    known, others = _options(factory)
    strange = [name for name in options if name not in known]
    if strange and not others:
        hint = nearest(strange[0], known) or (f"it takes {', '.join(known)}" if known else "it takes none")
        raise UserError(f"{what} takes no option {strange[0]!r}: {hint}")
    return factory(**options)


def refuse_options(what: str, options: dict[str, object]) -> None:
    """Raise if there are options for an object that is built already."""
    if options:
        shown = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise UserError(f"{what} is built already and does not take {shown}: give its name")


def option_names(factory: Callable[..., object]) -> list[str]:
    """Return the options that a factory takes by name."""
    return _options(factory)[0]


def _options(factory: Callable[..., object]) -> tuple[list[str], bool]:
    """Return the options that a factory takes by name, and whether it may take others.

    `**options` stands for those of the class that a function returns, and for those of the base that a class passes
    them on to; where neither is known, for any.
    """
    if isinstance(factory, partial):
        bound = inspect.signature(factory.func).bind_partial(*factory.args).arguments
        names, others = _options(factory.func)
        return [name for name in names if name not in bound], others
    parameters = inspect.signature(factory).parameters.values()
    parameter_names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        return parameter_names, False
    passed_on = factory.__mro__[1] if isinstance(factory, type) else get_type_hints(factory).get("return")
    if not isinstance(passed_on, type) or passed_on is object:
        return parameter_names, True
    required = {p.name for p in inspect.signature(passed_on).parameters.values() if p.default is p.empty}
    names, others = _options(passed_on)
    return parameter_names + [name for name in names if name not in parameter_names and name not in required], others
