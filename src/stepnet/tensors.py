"""Tensors in safetensors files: atomic writing, no pickle, a checksum of every byte."""

from __future__ import annotations

import stat
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from stepnet.errors import UserError, first_line
from stepnet.files import atomic_file

Tensors = dict[str, Tensor]
CHECKSUM = "checksum"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Write the tensors and the header, atomically."""
    _check_name(path)
    copies = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with atomic_file(path) as partial:
        try:
            save_file(copies, partial, metadata={**header, CHECKSUM: str(checksum(copies))})
        except SafetensorError as error:  # raised when the disk is full, too
            raise OSError(str(error)) from None


def read_tensors(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Read the tensors and the header of a file, and verify its checksum."""
    _check_name(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would block
            raise UserError(f"{path} is not a regular file: expected a safetensors file")
        with safe_open(path, framework="pt") as file:
            header: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a run writes its model by the end of its first epoch") from None
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is damaged or not a safetensors file: {first_line(error)}") from None
    if CHECKSUM in header and header[CHECKSUM] != str(checksum(tensors)):
        raise UserError(f"{path} is damaged: its tensors do not have the checksum in its header")
    return tensors, header


def _check_name(path: Path) -> None:
    """Raise for a path that is not UTF-8, which safetensors cannot open."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UserError(f"{path}: safetensors needs a path in UTF-8; rename the file") from None


def first_difference(network: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> str | None:
    """Describe the first tensor that one network lacks or that differs in shape or type; None if all agree."""
    missing = sorted(set(network) ^ set(other))
    if missing:
        return f"{missing[0]!r}, which only {'the network' if missing[0] in network else 'the file'} has"
    for name, tensor in network.items():
        there, here = (f"{list(t.shape)} {str(t.dtype).removeprefix('torch.')}" for t in (other[name], tensor))
        if there != here:
            return f"{name!r}: {there} in the file, {here} in the network"
    return None


def widened(value: Tensor) -> Tensor:
    """Convert to float64, on the CPU if the device has none (Apple's GPUs)."""
    return (value.cpu() if value.is_mps else value).double()


def checksum(tensors: Mapping[str, Tensor]) -> int:
    """Return the checksum of names and bytes."""
    total = 0
    for name in sorted(tensors):
        flat: Any = tensors[name].cpu().flatten().view(torch.uint8).numpy()
        total = zlib.crc32(flat, zlib.crc32(name.encode(), total))
    return total
