"""The registry of schemes, models, data sets, noises, recipes and tasks by name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from functools import partial
from typing import Generic, TypeVar, get_type_hints

from stepnet.errors import UserError, nearest, unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """Values of one kind by name and alias, and families of them; `registry[name]` raises with the nearest names."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # what messages call it: "scheme"
        self.entries: dict[str, T] = {}
        self.aliases: dict[str, str] = {}
        self.families: dict[str, tuple[re.Pattern[str], Callable[[re.Match[str]], T]]] = {}  # by one of the names

    def add(self, name: str, value: T, aliases: Iterable[str] = ()) -> T:
        """Register a value under `name` and its aliases; raise if a name is taken."""
        aliases = tuple(aliases)
        for taken in (name, *aliases):
            if taken in self:
                raise UserError(f"{self.kind} {taken!r} is registered already: choose another name")
        self.entries[name] = value
        self.aliases.update(dict.fromkeys(aliases, name))
        return value

    def add_family(self, example: str, pattern: str, member: Callable[[re.Match[str]], T]) -> None:
        """Register all names that match a regular expression, such as `example`."""
        self.families[example] = re.compile(pattern), member

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
        if name in self:
            return self.entries[self.canonical(name)]
        for pattern, member in self.families.values():
            if match := pattern.fullmatch(name):
                return member(match)
        raise unknown(self.kind, name, {*self.entries, *self.aliases, *self.families})

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.canonical(name) in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def build(what: str, factory: Callable[..., T], options: dict[str, object]) -> T:
    """Call `factory(**options)`; raise `UserError` for an option that it does not have."""
    known, open_ended = _options(factory)
    unexpected = [name for name in options if name not in known]
    if unexpected and not open_ended:
        hint = nearest(unexpected[0], known) or (f"it takes {', '.join(known)}" if known else "it takes none")
        raise UserError(f"{what} takes no option {unexpected[0]!r}: {hint}")
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

    `**options` of a function are the options of the class that it returns, and `**options` of a class are those of its
    base; if neither is known, any name is accepted.
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
