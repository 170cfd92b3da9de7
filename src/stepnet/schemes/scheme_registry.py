"""Schemes by name: `register_scheme`, `get_scheme`, `list_schemes`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from stepnet.arguments import checked, shown
from stepnet.errors import UserError
from stepnet.registry import Registry, build, option_names, refuse_options
from stepnet.schemes.core import Equation, Scheme

Factory = TypeVar("Factory", bound=Callable[..., Scheme])

SCHEMES: Registry[Callable[..., Scheme]] = Registry("scheme")


@checked
def register_scheme(name: str, *, aliases: tuple[str, ...] = ()) -> Callable[[Factory], Factory]:
    """Class decorator: register a scheme under `name` and `aliases`."""

    def register(factory: Factory) -> Factory:
        SCHEMES.add(name, factory, aliases)
        if isinstance(factory, type) and issubclass(factory, Scheme) and factory.name == factory.__name__:
            factory.name = name  # the first registered name stays the name of the class
        return factory

    return register


@checked
def register_family(prefix: str, make: Callable[[int], Scheme]) -> None:
    """Register a family of schemes, `prefix` followed by a whole number: `neumann7`, `fractal4`."""
    SCHEMES.add_family(f"{prefix}2", rf"{re.escape(prefix)}(\d{{1,9}})", lambda member: partial(make, int(member[1])))


@checked
def get_scheme(name: str | Scheme, **parameters: Any) -> Scheme:
    """Return the scheme with that name or alias, built with its parameters: `get_scheme("lm", k=-0.5)`.

    `lm+heun` is `lm` over `heun`: `get_scheme("lm", base="heun")`.
    """
    if isinstance(name, Scheme):
        refuse_options(f"scheme {name}", parameters)
        _check_equation(name)
        return name
    carry, plus, base = name.partition("+")
    if plus and carry in SCHEMES and "base" not in option_names(SCHEMES[carry]):
        raise UserError(f"scheme {name!r}: {carry!r} cannot be combined with a base; did you mean 'lm+{carry}'?")
    if plus and "base" in parameters:
        raise UserError(f"scheme {name!r} has the base {base!r}, and base = {parameters['base']!r}: give one of them")
    if plus:
        return get_scheme(carry, base=base, **parameters)
    factory = SCHEMES[name]
    name = SCHEMES.canonical(name)
    scheme = build(f"scheme {name!r}", factory, parameters)
    vars(scheme).setdefault("name", name)  # a member of a family names itself
    _check_equation(scheme)
    return scheme


def _check_equation(scheme: Scheme) -> None:
    """Raise unless `equation` is an `Equation`; one of several streams that is computed is not computed for this."""
    if scheme.streams and isinstance(type(scheme).equation, property):
        return
    equation: object = scheme.equation
    if not isinstance(equation, Equation):
        raise UserError(
            f"equation = {shown(equation)} of scheme {scheme.name!r}: expected an Equation of stepnet.schemes; leave "
            "it out for u' = f, or write Equation(derivative=2) for u'' = f"
        )


@checked
def list_schemes(pattern: str = "*") -> list[str]:
    """Return the registered names that match a shell pattern, in order of registration."""
    return SCHEMES.names(pattern)


@checked
def aliases_of(name: str) -> list[str]:
    """Return the other names of a scheme."""
    return SCHEMES.aliases_of(name)
