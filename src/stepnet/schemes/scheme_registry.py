"""Schemes by name: `register_scheme`, `get_scheme`, `list_schemes`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from stepnet.arguments import checked
from stepnet.errors import UserError
from stepnet.registry import Registry, build, option_names, refuse_options
from stepnet.schemes.core import Scheme

Factory = TypeVar("Factory", bound=Callable[..., Scheme])

SCHEMES: Registry[Callable[..., Scheme]] = Registry("scheme")
_families: dict[str, Callable[..., Scheme]] = {}


@checked
def register_scheme(name: str, *, aliases: tuple[str, ...] = ()) -> Callable[[Factory], Factory]:
    """Class decorator: make a scheme known under `name` and `aliases`, everywhere at once."""

    def register(factory: Factory) -> Factory:
        SCHEMES.add(name, factory, aliases)
        if isinstance(factory, type) and issubclass(factory, Scheme) and factory.name == factory.__name__:
            factory.name = name  # the first one: a second name for a class does not change what it is called
        return factory

    return register


@checked
def register_family(prefix: str, make: Callable[[int], Scheme]) -> None:
    """Make `prefix` with any whole number behind it a scheme: `neumann7`, `fractal4`."""
    _families[prefix] = make


@checked
def get_scheme(name: str | Scheme, **parameters: Any) -> Scheme:
    """The scheme of that name or alias, built with its parameters: `get_scheme("lm", k=-0.5)`.

    `lm+heun` is `lm` over `heun`: `get_scheme("lm", base="heun")`.
    """
    if isinstance(name, Scheme):
        refuse_options(f"scheme {name}", parameters)
        return name
    carry, plus, base = name.partition("+")
    if plus and carry in SCHEMES and "base" not in option_names(SCHEMES[carry]):
        raise UserError(f"scheme {name!r}: {carry!r} takes the increment of no other; take 'lm+{carry}'")
    if plus and "base" in parameters:
        raise UserError(f"scheme {name!r} has the base {base!r}, and base = {parameters['base']!r}: give one of them")
    if plus:
        return get_scheme(carry, base=base, **parameters)
    member = re.fullmatch(r"([a-z_]+?)(\d{1,9})", name)
    if name not in SCHEMES and member is not None and member[1] in _families:
        factory: Callable[..., Scheme] = partial(_families[member[1]], int(member[2]))
    else:
        factory = SCHEMES[name]
    name = SCHEMES.canonical(name)
    scheme = build(f"scheme {name!r}", factory, parameters)
    vars(scheme).setdefault("name", name)  # a member of a family names itself
    return scheme


@checked
def list_schemes(pattern: str = "*") -> list[str]:
    """The registered names that match a shell pattern, in order of registration."""
    return SCHEMES.names(pattern)


@checked
def aliases_of(name: str) -> list[str]:
    """The other names of a scheme."""
    return SCHEMES.aliases_of(name)
