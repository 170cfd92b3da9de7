"""Read .npy and .npz files from untrusted sources, with limits on their size.

No object is unpickled. A file without arrays raises a `UserError`.
"""

from __future__ import annotations

import lzma
import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from stepnet.errors import UserError, first_line
from stepnet.files import open_file, printable

HEADER = 2**16  # bytes; headers that numpy writes have 118
# Errors that the readers of zip, deflate and numpy's header raise for damaged content.
DAMAGE = (OSError, EOFError, ValueError, KeyError, SyntaxError, RecursionError, MemoryError, NotImplementedError)
DAMAGE_OF_ZIP = (*DAMAGE, zipfile.BadZipFile, zlib.error, lzma.LZMAError, RuntimeError)


def map_array(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Memory-map the .npy file at `path`; raise unless it has exactly this type and shape."""
    with open_file(path, HEADER + math.prod(shape) * dtype.itemsize), np.errstate(over="ignore"):
        try:
            array = npy.open_memmap(path, mode="r")
        except DAMAGE as error:
            raise UserError(f"{printable(path)}: {first_line(error)}") from None
    if (array.shape, array.dtype) != (shape, dtype) or not array.flags.c_contiguous:
        what = f"an array of type {array.dtype} and shape {array.shape}, expected {dtype} {shape}"
        raise UserError(f"{printable(path)}: {what}")
    return np.asarray(array)


def read_arrays(path: Path, names: Sequence[str], largest: int) -> list[NDArray[Any]]:
    """Read arrays by name from the .npz file at `path`, each of at most `largest` bytes and a header."""
    with open_file(path, len(names) * (HEADER + largest)) as file:
        try:
            with zipfile.ZipFile(file) as members:
                return [_member(members, name, largest) for name in names]
        except DAMAGE_OF_ZIP as error:
            raise UserError(f"{printable(path)}: {first_line(error)}") from None


def _member(members: zipfile.ZipFile, name: str, largest: int) -> NDArray[Any]:
    """Read one array; zipfile unpacks no more of a member than its directory entry states."""
    if f"{name}.npy" not in members.namelist():
        raise ValueError(f"no array {name}")
    if members.getinfo(f"{name}.npy").file_size > HEADER + largest:
        raise ValueError(f"{name} is larger than {largest:,} bytes")
    with members.open(f"{name}.npy") as member:
        return npy.read_array(member, allow_pickle=False)
