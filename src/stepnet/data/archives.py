"""Unpacking a .tar.gz archive that a stranger made."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from stepnet.errors import UserError

LARGEST_CONTENT = 2**30  # bytes; the CIFAR archives hold less than a fifth of it


def extract(archive: Path, folder: Path, top: str) -> None:
    """Write the files that the archive holds in its folder `top` into `folder`.

    The archive is checked before anything is written. One that holds a link, a device, an absolute path, a `..`, or
    more than `LARGEST_CONTENT` bytes is refused whole. Files are written as new ones: owners and modes are not taken.
    """
    try:
        with tarfile.open(archive, "r:gz") as tar:
            files = _checked(archive, tar)
            for path, member in files.items():
                if path.parts[0] != top or len(path.parts) == 1:
                    continue
                target = folder.joinpath(*path.parts[1:])
                target.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None, "extractfile returns None for what is no file, and only files are here"
                with content, target.open("xb") as file:
                    shutil.copyfileobj(content, file)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UserError(f"{archive} is no whole archive ({error}): delete it and fetch again") from None


def _checked(archive: Path, tar: tarfile.TarFile) -> dict[PurePosixPath, tarfile.TarInfo]:
    files: dict[PurePosixPath, tarfile.TarInfo] = {}
    size = 0
    for member in tar:
        path = PurePosixPath(member.name)
        outside = path.is_absolute() or ".." in path.parts or "\\" in member.name or ":" in member.name
        if outside or not (member.isfile() or member.isdir()) or (member.isfile() and path in files):
            raise UserError(
                f"{archive} is refused, and nothing of it was written: it holds {member.name!r}, "
                "and only files and folders inside the archive are allowed, each once"
            )
        size += member.size
        if size > LARGEST_CONTENT:
            raise UserError(f"{archive} is refused: it unpacks to more than {LARGEST_CONTENT} bytes")
        if member.isfile() and path.parts:
            files[path] = member
    return files
