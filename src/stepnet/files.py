"""A file or a folder that is written whole or not at all, and a folder that one process holds alone.

The content goes to a temporary name beside its destination, reaches the disk, and is then renamed: a reader,
or a process that starts after a crash, sees the old content or the new one and nothing in between.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from stepnet.errors import UserError

PARTIAL = ".partial"  # how temporary names end
LOCK = ".lock"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to; it becomes `path` when the block ends, and vanishes if the block fails.

    A disk that is full or cannot be written is told in one line.
    """
    try:
        with _whole_file(path) as partial:
            yield partial
    except OSError as error:
        kept = "the one before it is untouched" if path.exists() else "there is none before it"
        raise UserError(f"cannot write {path}: {error.strerror or error}; {kept}") from None


@contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=PARTIAL, dir=path.parent)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        partial.chmod(0o666 & ~_umask())  # mkstemp makes files for their owner alone
        _to_disk(partial)
        partial.replace(path)
        _to_disk(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to fill; it becomes `path` when the block ends, and vanishes if the block fails.

    A `path` that exists by then is left as it is: another process made it first, from the same source.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}-", suffix=PARTIAL, dir=path.parent))
    try:
        yield partial
        for inner in partial.rglob("*"):
            _to_disk(inner)
        partial.chmod(0o777 & ~_umask())
        try:
            partial.rename(path)
        except OSError:
            if not path.is_dir():
                raise
        _to_disk(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def hold(folder: Path) -> IO[bytes] | None:
    """Hold the folder for this process: the handle to keep, None if another process has it.

    The kernel lets go of it when the process ends, however it ends. Where the file system knows no locks, nobody is
    kept out. The lock is POSIX's: it works over NFS, and children do not inherit it.
    """
    handle = (folder / LOCK).open("ab")
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            handle.close()
            return None
    return handle


def sweep(folder: Path) -> None:
    """Remove what `whole_file` could not, because its process was killed; for the process that holds the folder."""
    for partial in folder.glob(f".*{PARTIAL}"):
        partial.unlink()


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
