"""A pickle of arrays, opened without running it.

A pickle is a program: it may name any function of any module and call it. `load_arrays` knows only the names by
which numpy writes arrays, and gives each a stand-in of its own that only checks and stores; every other name is
refused. What can come out is arrays of plain numbers, bytes, str, numbers, tuples, lists and dicts.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepnet.errors import UserError

LARGEST_FILE = 2**29  # bytes; the largest official file is CIFAR-100's train, 155 million bytes


def load_arrays(path: Path) -> Any:
    """The content of the pickle at `path`; a `UserError` if it holds anything but arrays and plain values."""
    if path.stat().st_size > LARGEST_FILE:
        raise UserError(f"{path} holds {path.stat().st_size} bytes: expected at most {LARGEST_FILE}")
    try:
        content = _Arrays(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        return _plain(content)
    except UserError as error:
        raise UserError(f"{path} is refused: {error}; nothing in it was run") from None
    except Exception as error:  # a broken pickle raises whatever its bytes happen to mean
        raise UserError(f"{path} is not a whole pickle of arrays ({type(error).__name__}: {error})") from None


class _StandIn:
    """Stands for a name in the pickle. `__setstate__` is here so that a pickle cannot set attributes of its own."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise UserError(f"it sets the state of {type(self).__name__}")


class _Ndarray(_StandIn):
    """`numpy.ndarray`, which only ever appears as an argument of `_reconstruct`."""

    def __init__(self, *_: object) -> None:
        raise UserError("it calls numpy.ndarray")


class _Bytes(_StandIn):
    """`_codecs.encode(text, "latin1")`: how newer pickles of the old protocol write bytes."""

    def __new__(cls, text: str, encoding: object) -> Any:
        if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
            raise UserError(f"it encodes text by {encoding!r}")
        return text.encode("latin1")


class _Dtype(_StandIn):
    """`numpy.dtype(code, align, copy)` for plain numbers; the state tells the byte order."""

    __slots__ = ("value",)

    def __init__(self, code: str | bytes, *_: object) -> None:
        text = code.decode("ascii") if isinstance(code, bytes) else str(code)
        if text not in ("b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"):
            raise UserError(f"it holds an array of {text!r}")
        self.value = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        if state[1] in (">", b">"):
            self.value = self.value.newbyteorder(">")


class _Array(_StandIn):
    """`_reconstruct(ndarray, (0,), b"b")`, filled by its state: version, shape, dtype, Fortran order, bytes."""

    __slots__ = ("value",)

    def __init__(self, *_: object) -> None:
        self.value: NDArray[Any] = np.empty(0)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        self.value = _array(content, dtype, shape, "F" if fortran else "C")


class _Buffer(_StandIn):
    """`_frombuffer(bytes, dtype, shape, order)`: how protocol 5 writes an array."""

    def __new__(cls, content: bytes, dtype: _Dtype, shape: tuple[int, ...], order: Any) -> Any:
        return _array(content, dtype, shape, order)


def _array(content: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    if not isinstance(dtype, _Dtype) or not isinstance(content, bytes | bytearray):
        raise UserError("it holds an array that is not made of bytes")
    return np.frombuffer(bytes(content), dtype.value).reshape(shape, order=order)


_STAND_INS: dict[tuple[str, str], type[_StandIn]] = {
    ("numpy", "ndarray"): _Ndarray,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Bytes,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _Buffer for core in ("core", "_core")},
}


# The unpickler written in Python: the one in C allocates whatever memo size a malicious file names.
class _Arrays(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> type[_StandIn]:
        if (module, name) not in _STAND_INS:
            raise UserError(f"it names {module}.{name}, and only arrays, bytes, str, list and dict are allowed")
        return _STAND_INS[module, name]

    def persistent_load(self, pid: object) -> None:
        raise UserError(f"it refers to something outside itself, {pid!r}")


def _plain(value: Any) -> Any:
    """`value` with the arrays in place of what stood for them, and nothing else that stands for something."""
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, dict):
        return {_plain(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    if isinstance(value, np.ndarray | bytes | str | int | float | None):
        return value
    raise UserError(f"it holds {value!r}")
