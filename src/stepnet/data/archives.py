"""Unpacking an archive whose bytes are known."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

from stepnet.errors import UserError


def sha256_of(path: Path) -> str:
    """The sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def extract(archive: Path, sha256: str, folder: Path) -> None:
    """Unpack the .tar.gz archive into `folder`, after its checksum has been looked at and not before."""
    found = sha256_of(archive)
    if found != sha256:
        raise UserError(f"{archive.name} has the sha256 {found} where {sha256} is expected: nothing of it was unpacked")
    with tarfile.open(archive, "r:gz") as tar:
        tar.extractall(folder, filter="data")
