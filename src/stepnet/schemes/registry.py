"""Schemes by name: `register_scheme`, `get_scheme`, `list_schemes`."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any, TypeVar

from stepnet.errors import UserError, unknown
from stepnet.schemes.core import Scheme

Factory = TypeVar("Factory", bound=Callable[..., Scheme])

_factories: dict[str, Callable[..., Scheme]] = {}
_aliases: dict[str, str] = {}
_families: dict[str, Callable[..., Scheme]] = {}


def register_scheme(name: str, *, aliases: tuple[str, ...] = ()) -> Callable[[Factory], Factory]:
    """Class decorator: make a scheme known under `name` and `aliases`, everywhere at once."""

    def register(factory: Factory) -> Factory:
        for taken in (name, *aliases):
            if taken in _factories or taken in _aliases:
                raise UserError(f"a scheme named {taken!r} is registered already: choose another name")
        if isinstance(factory, type) and issubclass(factory, Scheme):
            factory.name = name
        _factories[name] = factory
        _aliases.update(dict.fromkeys(aliases, name))
        return factory

    return register


def register_family(prefix: str, make: Callable[[int], Scheme]) -> None:
    """Make `prefix` with any whole number behind it a scheme: `neumann7`, `fractal4`."""
    _families[prefix] = make


def get_scheme(name: str | Scheme, **parameters: Any) -> Scheme:
    """The scheme of that name or alias, built with its parameters: `get_scheme("lm", k=-0.5)`."""
    if isinstance(name, Scheme):
        if parameters:
            raise UserError(f"scheme {name!r} is built already and does not take {_shown(parameters)}: give its name")
        return name
    canonical = _aliases.get(name, name)
    factory = _factories.get(canonical)
    if factory is None:
        member = re.fullmatch(r"([a-z_]+?)(\d+)", str(name))
        if member is None or member[1] not in _families:
            raise unknown("scheme", name, {*_factories, *_aliases})
        family, number = _families[member[1]], int(member[2])
        return _build(name, lambda **kw: family(number, **kw), parameters)
    return _build(canonical, factory, parameters)


def list_schemes(pattern: str = "*") -> list[str]:
    """The registered names that match a shell pattern, in order of registration."""
    return [name for name in _factories if fnmatch(name, pattern)]


def aliases_of(name: str) -> list[str]:
    """The other names of a scheme."""
    return [alias for alias, canonical in _aliases.items() if canonical == name]


def _build(name: str, factory: Callable[..., Scheme], parameters: dict[str, Any]) -> Scheme:
    try:
        scheme = factory(**parameters)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error) and "takes no arguments" not in str(error):
            raise
        raise UserError(f"scheme {name!r} does not take {_shown(parameters)}") from None
    vars(scheme).setdefault("name", name)  # a member of a family names itself
    return scheme


def _shown(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in parameters.items())
