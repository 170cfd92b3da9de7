"""Check the arguments of public functions and classes against their annotations.

mypy checks types inside the library. A caller without a type checker gets one line for a wrong argument, with its name,
its value and what was expected, before anything is built. pydantic validates the values; it is imported by the first
call. Values are checked, not converted: a function receives its arguments unchanged.
"""

from __future__ import annotations

import collections.abc
import contextlib
import functools
import inspect
import os
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Complex, Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from stepnet.errors import UserError, nearest

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T", bound=Callable[..., Any])

MOST = 2**31 - 1  # the largest count
LARGEST = float(np.finfo(np.float32).max)  # the largest number in float32
LONGEST_NAME = 255  # bytes of one part of a path

Count = Annotated[int, Ge(1), Le(MOST)]
CountFromZero = Annotated[int, Ge(0), Le(MOST)]
Seed = Annotated[int, Ge(0), Le(2**63 - 1)]  # torch's generators take no larger one
Positive = Annotated[float, Gt(0), Le(LARGEST)]
NotNegative = Annotated[float, Ge(0), Le(LARGEST)]
Probability = Annotated[float, Ge(0), Le(1)]
Share = Annotated[float, Ge(0), Lt(1)]
OpenShare = Annotated[float, Gt(0), Lt(1)]

WORDS = {  # messages by pydantic's type of error
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a str",
    "bool_type": "True or False",
    "none_required": "None",
    "callable_type": "a function",
    "sequence_str": "a Sequence",
    "list_type": "a Sequence",
    "tuple_type": "a tuple",
    "dict_type": "a dict",
    "missing": "a longer tuple",
    "too_short": "{min_length} or more",
    "too_long": "a shorter tuple",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
}


def checked(target: T) -> T:
    """Decorate a function or class: raise `UserError` for arguments that do not match their annotations."""
    if isinstance(target, type):
        target.__init__ = checked(vars(target)["__init__"])  # type: ignore[misc]
        return target
    signature = inspect.signature(target)

    @functools.wraps(target)
    def checking(*args: Any, **kwargs: Any) -> Any:
        for what, value, adapter in _annotated(target, signature.bind(*args, **kwargs)):
            error = _error(adapter, value)
            if error is not None:
                name = type(args[0]).__name__ if target.__name__ == "__init__" else target.__name__
                raise UserError(_explained(what, value, error, f" in {name}(…)"))
        return target(*args, **kwargs)

    return typing.cast(T, checking)


def _annotated(
    function: Callable[..., Any], bound: inspect.BoundArguments
) -> Iterator[tuple[str, object, TypeAdapter[Any]]]:
    """Yield the name, value and type of each annotated argument."""
    known = _adapters(function)
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            yield from ((option, inner, known[option]) for option, inner in value.items() if option in known)
        elif name in known:
            values = value if kind is inspect.Parameter.VAR_POSITIONAL else (value,)
            yield from ((name, inner, known[name]) for inner in values)


def _error(adapter: TypeAdapter[Any], value: object) -> ValidationError | None:
    """Return the error of a value that does not match its type, also when converted to plain numbers; else None."""
    from pydantic import ValidationError

    value = plain(value) if isinstance(value, Complex | np.bool_) else value
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        try:
            adapter.validate_python(plain(value))
        except ValidationError:
            return error
    return None


def _explained(what: str, value: object, error: ValidationError, where: str) -> str:
    """Format an error of pydantic: `u[1] = 'a': expected a number in f(…)`."""
    problems = error.errors(include_url=False)
    first = problems[0]
    inside = len(problems) == 1 and first["loc"] and first["type"] != "missing"  # one entry of a collection
    place = "".join(f"[{part!r}]" for part in first["loc"] if part != "[key]") if inside else ""
    return f"{what}{place} = {expectation(problems, first['input'] if inside else value, where)}"


def expectation(problems: Sequence[Mapping[str, Any]], value: object, where: str = "") -> str:
    """Format a value and what was expected: `'a': expected 'b' or 'bb'; did you mean 'b'?`."""
    words = " or ".join(dict.fromkeys(map(_expected, problems)))
    allowed = [word for problem in problems for word in re.findall("'(.+?)'", str(problem.get("ctx")))]
    near = nearest(value, allowed) if isinstance(value, str) else ""
    return f"{shown(value)}: expected {words}{where}" + (f"; {near}" if near else "")


def _expected(problem: Mapping[str, Any]) -> str:
    if problem["type"] in WORDS:
        ends = {name: f"{end:.6g}" if isinstance(end, float) else end for name, end in problem.get("ctx", {}).items()}
        return WORDS[problem["type"]].format(**ends)
    message = re.sub("^(Input should be|Value error,) ", "", problem["msg"])
    return re.sub("^an instance of ", "a ", message).replace("PathLike", "path")


def plain(value: Any) -> Any:
    """Return a value with Python numbers, and lists for one-dimensional arrays."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    with contextlib.suppress(TypeError, OverflowError):  # a symbol, or a fraction larger than any float
        for kind, python in ((Integral, int), (Real, float), (Complex, complex)):
            if isinstance(value, kind):
                return python(typing.cast(Any, value))
    if getattr(value, "ndim", None) == 1 and getattr(value.dtype, "kind", "f") in "biufc":
        return value.tolist() or [0]  # an empty array counts as one of numbers
    if isinstance(value, range):
        return list(value[:1])  # one element is enough to check
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def shown(value: object) -> str:
    """Return a short repr of a value; an error in its `repr` is caught."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of an unknown class
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:50]}… ({type(value).__name__})"


@functools.cache
def _adapters(function: Callable[..., object]) -> dict[str, TypeAdapter[Any]]:
    """Return a validator for each annotated argument."""
    from pydantic import ConfigDict, TypeAdapter

    strict = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
    hints: dict[str, object] = {}
    for name, hint in typing.get_type_hints(function, include_extras=True).items():
        options = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Unpack else None
        hints |= typing.get_type_hints(options, include_extras=True) if options is not None else {name: hint}
    return {name: TypeAdapter(_strictly(hint), config=strict) for name, hint in hints.items() if name != "return"}


def _strictly(hint: Any) -> Any:
    """Return a strict type for pydantic: instances only for classes; file names and arrays are checked too."""
    from pydantic import AfterValidator, BeforeValidator, GetPydanticSchema
    from pydantic_core import core_schema

    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, TypeVar):
        return _strictly(hint.__bound__ or Any)
    if origin in (Union, types.UnionType):
        union: Any = Union[tuple(map(_strictly, parts))]  # noqa: UP007
        named = any(typing.get_origin(part) is os.PathLike for part in parts)
        return Annotated[union, AfterValidator(_file_name)] if named else union
    if origin is Annotated:
        return Annotated[(_strictly(parts[0]), *parts[1:])]
    if (origin or hint) is np.ndarray:
        return Annotated[np.ndarray, AfterValidator(_array_of_numbers)]
    if hint is float:
        return Annotated[float, BeforeValidator(_real)]  # float itself takes a tensor of one number
    if hint is complex:
        return complex | _strictly(float)
    if isinstance(hint, type) and not parts and hint not in (Any, object, int, float, str, bool, types.NoneType):
        return Annotated[Any, GetPydanticSchema(lambda *_: core_schema.is_instance_schema(hint))]
    if isinstance(origin, type) and issubclass(origin, collections.abc.Collection):
        return origin[tuple(part if part is Ellipsis else _strictly(part) for part in parts)]  # type: ignore[index]
    return hint


def _real(value: object) -> object:
    from pydantic_core import PydanticCustomError

    if not isinstance(value, int | float):
        raise PydanticCustomError("float_type", "a number")
    return value


def _file_name(value: object) -> object:
    if isinstance(value, str | os.PathLike):
        name = os.fsencode(os.fspath(value))
        if b"\0" in name or any(len(part) > LONGEST_NAME for part in name.split(os.sep.encode())):
            raise ValueError("a name that a file can have")
    return value


def _array_of_numbers(value: np.ndarray[Any, Any]) -> object:
    if value.dtype.kind not in "biufc":
        raise ValueError("an array of numbers")
    return value
