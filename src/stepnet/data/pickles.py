"""A pickle of arrays, read and not run.

A pickle is a program: it may name any function of any module and call it, and a short one may run for ever. This is a
machine of our own for the few operations that write arrays, text, numbers, lists and dicts. It calls nothing: the names
by which numpy writes arrays make arrays of plain numbers, and every other name and operation is refused.
"""

from __future__ import annotations

import pickletools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepnet.errors import UserError, first_line
from stepnet.files import printable, read_file

LARGEST_FILE = 2**28  # bytes; the largest official file is CIFAR-100's train, 155 million bytes
MOST_OPERATIONS = 500_000  # CIFAR-100's train takes half of it

CORES = ("numpy.core", "numpy._core")  # before numpy 2, and since
NAMES = frozenset({"numpy ndarray", "numpy dtype", "_codecs encode"}).union(
    *({f"{core}.multiarray _reconstruct", f"{core}.numeric _frombuffer"} for core in CORES)
)
NUMBERS = ("b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")


def load_arrays(path: Path, keys: Sequence[bytes]) -> list[NDArray[Any]]:
    """The arrays, or lists of whole numbers, under these keys of the dict that the pickle at `path` holds."""
    content = read_file(path, LARGEST_FILE)
    try:
        held = _Machine().run(content)
        if not isinstance(held, dict):
            raise UserError("it holds no dict")
        return [_array_under(held, key) for key in keys]
    except UserError as error:
        raise UserError(f"{printable(path)} is refused: {error}; nothing in it was run") from None
    except Exception as error:  # a broken pickle raises whatever its bytes happen to mean
        said = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"{printable(path)} is not a whole pickle of arrays ({said})") from None


def _array_under(held: dict[object, object], key: bytes) -> NDArray[Any]:
    value = held.get(key, held.get(key.decode("ascii")))
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, list) and value and {type(each) for each in value} == {int}:
        return np.asarray(value, np.int64)
    raise UserError(f"it holds no array and no list of whole numbers under {key!r}")


class _Dtype:
    """`numpy.dtype(code, align, copy)` for plain numbers; the state tells the byte order."""

    def __init__(self, code: Any) -> None:
        text = code if isinstance(code, str) else code.decode("ascii")
        if text not in NUMBERS:
            raise UserError(f"it holds an array of {text!r:.20}")
        self.value = np.dtype(text)

    def fill(self, state: Any) -> None:
        if state[1] in (">", b">"):
            self.value = self.value.newbyteorder(">")


class _Array:
    """An array made of bytes; `_reconstruct(ndarray, (0,), b"b")` makes it empty, and its state fills it."""

    value: NDArray[Any] = np.empty(0)

    def fill(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        self.set(content, dtype, shape, "F" if fortran else "C")

    def set(self, content: object, dtype: object, shape: Any, order: Any) -> None:
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes | bytearray):
            raise UserError("it holds an array that is not made of bytes")
        self.value = np.frombuffer(content, dtype.value).reshape(shape, order=order)


_MARK = object()


class _Machine:
    """The stack and the memo of a pickle.

    Tuples are lists here. A list is no key of a dict: a tuple that holds another twice, which holds another twice, and
    so on, takes a hundred bytes, and hashing or printing it takes for ever.
    """

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.encoded: dict[str, bytes] = {}

    def run(self, content: bytes) -> object:
        for count, (operation, argument, _) in enumerate(pickletools.genops(content)):
            if operation.name == "STOP":
                break
            if count == MOST_OPERATIONS:
                raise UserError(f"it takes more than {MOST_OPERATIONS:,} operations")
            self._step(operation.name, argument)
        return self.stack.pop()

    def _step(self, name: str, argument: Any) -> None:
        stack, pop = self.stack, self.stack.pop
        match name:
            case "PROTO" | "FRAME":
                pass
            case "INT" | "BININT" | "BININT1" | "BININT2" | "LONG" | "LONG1" | "FLOAT" | "BINFLOAT" | "NONE":
                stack.append(argument)
            case "BINBYTES" | "SHORT_BINBYTES" | "BINBYTES8" | "BYTEARRAY8":
                stack.append(argument)
            case "UNICODE" | "BINUNICODE" | "SHORT_BINUNICODE" | "BINUNICODE8":
                stack.append(argument)
            case "STRING" | "BINSTRING" | "SHORT_BINSTRING":  # the bytes of Python 2
                stack.append(argument.encode("latin1"))
            case "NEWTRUE" | "NEWFALSE":
                stack.append(name == "NEWTRUE")
            case "MARK":
                stack.append(_MARK)
            case "POP":
                pop()
            case "EMPTY_LIST" | "EMPTY_TUPLE":
                stack.append([])
            case "LIST" | "TUPLE":
                stack.append(self._to_mark())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(name[-1])
                stack[-count:] = [stack[-count:]]
            case "APPEND":
                value = pop()
                stack[-1].append(value)
            case "APPENDS":
                values = self._to_mark()
                stack[-1].extend(values)
            case "EMPTY_DICT":
                stack.append({})
            case "DICT" | "SETITEMS":
                values = self._to_mark()
                if name == "DICT":
                    stack.append({})
                stack[-1].update(zip(values[::2], values[1::2], strict=True))
            case "SETITEM":
                *_, target, key, value = stack
                del stack[-2:]
                target.update({key: value})
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self.memo[int(argument)] = stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(self.memo[int(argument)])
            case "GLOBAL":
                stack.append(_name(argument))
            case "STACK_GLOBAL":
                module, attribute = stack[-2:]
                stack[-2:] = [_name(f"{module:.80} {attribute:.80}")]
            case "REDUCE":
                function, arguments = stack[-2:]
                stack[-2:] = [self._made(function, arguments)]
            case "BUILD":
                state = pop()
                stack[-1].fill(state)
            case _:
                raise UserError(f"it uses the operation {name}, which arrays do not need")

    def _to_mark(self) -> list[Any]:
        """What was pushed since the last mark."""
        mark = len(self.stack) - 1 - next(i for i, value in enumerate(reversed(self.stack)) if value is _MARK)
        values = self.stack[mark + 1 :]
        del self.stack[mark:]
        return values

    def _made(self, function: str, arguments: list[Any]) -> object:
        """What numpy's own function of that name would have made of the arguments."""
        match function.rpartition(" ")[2]:
            case "dtype":
                return _Dtype(arguments[0])
            case "_reconstruct":
                return _Array()
            case "_frombuffer":
                array = _Array()
                array.set(*arguments)
                return array
            case "encode":  # (text, "latin1"): how newer pickles of the old protocol write bytes; each text once
                text, encoding = arguments
                if encoding not in ("latin1", b"latin1"):
                    raise UserError("it encodes text in a way that bytes do not need")
                if text not in self.encoded:
                    self.encoded[text] = text.encode("latin1")
                return self.encoded[text]
            case _:
                raise UserError(f"it calls {function:.80}")


def _name(text: str) -> str:
    """A name of `NAMES`: text, and nothing that can be called."""
    if text not in NAMES:
        raise UserError(f"it names {text.replace(' ', '.')}, and only arrays, bytes, str, list and dict are allowed")
    return text
