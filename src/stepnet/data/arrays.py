"""numpy's files of arrays, opened so that a header cannot ask for more than the file may hold.

No object is ever unpickled. The header is read first; what it names must be plain numbers, and their bytes must be
there. A file that is none raises `UserError` in one line.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from stepnet.errors import UserError, first_line
from stepnet.files import open_file, printable

HEADER = 2**16  # bytes; numpy's own headers have 118
# What damaged content makes the readers of zip, deflate and numpy's header raise.
DAMAGE = (OSError, EOFError, ValueError, KeyError, SyntaxError, RecursionError, MemoryError, NotImplementedError)
DAMAGE_OF_ZIP = (*DAMAGE, zipfile.BadZipFile, zlib.error, RuntimeError)

Shape = tuple[int, ...]


def map_array(path: Path, dtype: np.dtype[Any], shape: Shape) -> NDArray[Any]:
    """The array of exactly this type and shape in the .npy file at `path`, memory-mapped."""
    size = math.prod(shape) * dtype.itemsize
    with open_file(path, HEADER + size) as file:
        try:
            found_shape, fortran, found_dtype = _header(file)
            if (found_shape, found_dtype, fortran) != (shape, dtype, False):
                raise ValueError(f"an array of type {found_dtype} and shape {found_shape}, expected {dtype} {shape}")
            return np.asarray(np.memmap(file, dtype, "r", file.tell(), shape))
        except DAMAGE as error:
            raise UserError(f"{printable(path)}: {first_line(error)}") from None


def read_arrays(path: Path, names: Sequence[str], largest: int) -> list[NDArray[Any]]:
    """The arrays of these names, of at most `largest` bytes each, in the .npz file at `path`."""
    with open_file(path, len(names) * (HEADER + largest)) as file:
        try:
            with zipfile.ZipFile(file) as members:
                return [_member(members, name, largest) for name in names]
        except DAMAGE_OF_ZIP as error:
            raise UserError(f"{printable(path)}: {first_line(error)}") from None


def _member(members: zipfile.ZipFile, name: str, largest: int) -> NDArray[Any]:
    if f"{name}.npy" not in members.namelist():
        raise ValueError(f"it holds no {name}")
    with members.open(f"{name}.npy") as member:
        shape, fortran, dtype = _header(member)
        size = math.prod(shape) * dtype.itemsize
        if size > largest:
            raise ValueError(f"{name} of type {dtype} and shape {shape} is larger than {largest:,} bytes")
        content = member.read(size)
    if len(content) < size:
        raise ValueError(f"{name} ends after {len(content)} of {size} bytes")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def _header(file: IO[bytes]) -> tuple[Shape, bool, np.dtype[Any]]:
    version = npy.read_magic(file)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"version {version} of numpy's format is not known")
    shape, fortran, dtype = read(file)
    if dtype.hasobject or dtype.kind not in "biufSU":
        raise ValueError(f"it holds {dtype}: expected numbers, and objects are not unpickled")
    if min(shape, default=0) < 0:
        raise ValueError(f"it has the shape {shape}")
    return shape, fortran, dtype
