"""Arguments of public functions are checked against their annotations: one mechanism, at the boundary.

Inside the library types are checked by mypy. A caller without a type checker gets one line for a wrong argument, with
its name, its value and what was expected, before anything is built.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from numbers import Complex, Integral, Real
from typing import Any, Literal, ParamSpec, TypeVar, Union

import numpy as np

from stepnet.errors import UserError, nearest

P = ParamSpec("P")
R = TypeVar("R")

NUMBERS: Mapping[object, type] = {int: Integral, float: Real, complex: Complex}  # numpy's too, and no truth values

LONGEST_NAME = 255  # bytes of one part of a path
WORDS: Mapping[object, str] = {
    os.PathLike: "a path",
    int: "a whole number",
    float: "a number",
    complex: "a number",
    str: "a str",
    bool: "True or False",
}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses arguments that are not what its annotations say."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checking(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            kind = signature.parameters[name].kind
            hint = _hints(function).get(name, Any)
            if kind is inspect.Parameter.VAR_KEYWORD:
                options = _options(hint)
                given = [(option, inner, options.get(option, Any)) for option, inner in value.items()]
            elif kind is inspect.Parameter.VAR_POSITIONAL:
                given = [(name, inner, hint) for inner in value]
            else:
                given = [(name, value, hint)]
            for what, inner, wanted in given:
                if not fits(inner, wanted):
                    near = nearest(inner, allowed_words(wanted)) if isinstance(inner, str) else ""
                    raise UserError(
                        f"{what} = {shown(inner)}: expected {in_words(wanted)} in {function.__name__}(…)"
                        + (f"; {near}" if near else "")
                    )
        return function(*args, **kwargs)

    return checking


def fits(value: object, hint: object) -> bool:
    """Whether a value is one of a type; what cannot be decided here is taken for right."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object):
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin in (Union, types.UnionType):
        if isinstance(value, str) and any(typing.get_origin(part) is os.PathLike for part in parts):
            return _is_file_name(value)
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if isinstance(hint, TypeVar):
        return fits(value, hint.__bound__ or Any)
    if hint in NUMBERS:
        return isinstance(value, NUMBERS[hint]) and not isinstance(value, bool)
    kind = origin or hint
    if kind is collections.abc.Callable:
        return callable(value)
    if not isinstance(kind, type) or _is_silent_protocol(kind):
        return True
    if kind in (collections.abc.Sequence, collections.abc.Iterable) and hasattr(value, "ndim"):  # an array or a tensor
        return bool(value.ndim == 1) and all(part in NUMBERS or part is Any for part in parts)
    if kind is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype.kind in "biufc"  # numbers
    if isinstance(value, str | bytes) and kind not in (str, bytes) and issubclass(kind, collections.abc.Iterable):
        return False  # a str is a sequence of str, and never meant as one
    return isinstance(value, kind) and _contents_fit(value, parts) and (kind is not os.PathLike or _is_file_name(value))


def in_words(hint: object) -> str:
    """A type in words that a message can hold."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is None or hint is type(None):
        return "None"
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(in_words, parts)))
    if isinstance(hint, TypeVar):
        return in_words(hint.__bound__)
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if hint in WORDS:
        return WORDS[hint]
    kind = origin or hint
    if kind is collections.abc.Callable:
        return "a function"
    if kind in WORDS:
        return WORDS[kind]
    name = str(getattr(kind, "__name__", kind))
    holds = isinstance(kind, type) and issubclass(kind, collections.abc.Collection)
    known = [part for part in parts if part not in (Ellipsis, Any)]
    inner = " or ".join(dict.fromkeys(map(in_words, known))) if holds and len(known) == len(parts) else ""
    count = f"{len(parts)}, each " if kind is tuple and Ellipsis not in parts else ""
    return f"a {name} of {count}{inner}" if inner else f"a {name}"


def allowed_words(hint: object) -> list[str]:
    """The words that a type allows."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return [part for part in parts if isinstance(part, str)]
    return [word for part in parts for word in allowed_words(part)] if origin in (Union, types.UnionType) else []


def shown(value: object) -> str:
    """A value, short enough for one line, whatever its own `repr` does."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a stranger's object
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:50]}… ({type(value).__name__})"


def _contents_fit(value: object, parts: tuple[object, ...]) -> bool:
    """The entries of a list, tuple, set or dict; those of other collections are not looked at."""
    if not parts or not isinstance(value, list | tuple | set | frozenset | dict | range):
        return True
    if isinstance(value, Mapping):
        return all(fits(key, parts[0]) and fits(inner, parts[-1]) for key, inner in value.items())
    if isinstance(value, tuple) and len(parts) > 1 and parts[-1] is not Ellipsis:
        return len(value) == len(parts) and all(map(fits, value, parts))
    return len(parts) > 2 or all(fits(inner, parts[0]) for inner in typing.cast("Collection[object]", value))


def _is_file_name(value: object) -> bool:
    """Whether a file may have this name: without a zero byte, and no part longer than file systems take."""
    name = os.fsencode(os.fspath(typing.cast("str | os.PathLike[str]", value)))
    return b"\0" not in name and all(len(part) <= LONGEST_NAME for part in name.split(os.sep.encode()))


def _options(hint: object) -> dict[str, object]:
    """The options by name that `**options: Unpack[Options]` allows; of others nothing is known."""
    (options,) = typing.get_args(hint) if typing.get_origin(hint) is typing.Unpack else (None,)
    return typing.get_type_hints(options) if typing.is_typeddict(options) else {}


def _is_silent_protocol(kind: type) -> bool:
    """A protocol that `isinstance` cannot be asked about."""
    return getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False)


@functools.cache
def _hints(function: Callable[..., object]) -> dict[str, object]:
    """The annotations as types; one whose names are imported for type checkers only is looked up, or left out."""
    known = dict(vars(sys.modules[function.__module__]))
    if "torch" in sys.modules:
        known.setdefault("torch", sys.modules["torch"])
    hints: dict[str, object] = {}
    for name, annotation in function.__annotations__.items():
        try:
            while isinstance(annotation, str):  # an alias may be a string, too
                annotation = eval(annotation, known)
            hints[name] = annotation
        except (NameError, AttributeError, TypeError, SyntaxError):
            continue
    return hints
