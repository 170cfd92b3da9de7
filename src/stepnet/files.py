"""Files: safe reading of untrusted files, atomic writing, locks.

A file is written under a temporary name in the same folder, synced to disk, and renamed: a reader, or a process that
starts after a crash, sees the old content or the new one and nothing in between.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from stepnet.errors import UserError
from stepnet.escaping import for_terminal

PARTIAL = ".partial"  # suffix of temporary names
LOCK = ".lock"
MODEL, LAST = "model.safetensors", "last.safetensors"  # in a run's folder


def open_file(path: Path, largest: int) -> BinaryIO:
    """Open an untrusted file for reading.

    Only a regular file of at most `largest` bytes is opened: a pipe or a terminal would block, a device might be
    endless or react to being opened.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # before it is opened …
            raise UserError(f"{printable(path)} is not a regular file: expected one of at most {largest:,} bytes")
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        file = os.fdopen(descriptor, "rb")
        status = os.fstat(descriptor)  # … and after, since it may have been replaced in between
        if not stat.S_ISREG(status.st_mode) or status.st_size > largest:
            file.close()
            raise UserError(f"{printable(path)} holds {status.st_size:,} bytes: expected at most {largest:,}")
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        if isinstance(error, UserError):
            raise
        raise UserError(f"cannot read {printable(path)}: {reason(error)}") from None
    return file


def read_file(path: Path, largest: int) -> bytes:
    """Read a regular file of at most `largest` bytes."""
    with open_file(path, largest) as file:
        content = file.read(largest + 1)
    if len(content) > largest:  # it has grown since
        raise UserError(f"{printable(path)} holds more than {largest:,} bytes: expected at most that")
    return content


def printable(path: Path | str) -> str:
    """Format a path for a message: escaped, and shortened in the middle if it is long."""
    text = for_terminal(path, keep="")
    return text if len(text) <= 200 else f"{text[:90]}…{text[-90:]}"


def reason(error: Exception) -> str:
    """Return the message of an operating system error, without the path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def is_folder(path: Path) -> bool:
    """Whether a folder of that name exists; False for a name that is too long or holds a zero byte."""
    return os.path.isdir(path)  # noqa: PTH112  (pathlib raises on such names)


def lasting_place(place: str) -> str:
    """Return a name that is valid in any working directory: the absolute path of an existing file or folder."""
    path = os.path.expanduser(place)  # noqa: PTH111  (pathlib raises on long names)
    return str(Path(path).absolute()) if os.path.exists(path) else place  # noqa: PTH110


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path` at the end, remove it on failure.

    A device, a pipe, a socket or a folder is never replaced, since other programs use it. If the disk is full or
    read-only, `UserError` is raised.
    """
    partial = None
    try:
        if "\0" in str(path):
            raise OSError(errno.EINVAL, "a zero byte in its name")
        _check_replaceable(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=PARTIAL, dir=path.parent)
        os.close(handle)
        partial = Path(name)
        yield partial
        partial.chmod(0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        _to_disk(partial)
        _check_replaceable(path)  # again, since it may have changed in between
        partial.replace(path)
        _to_disk(path.parent)
    except BaseException as error:
        if partial is not None:
            partial.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        kept = "the one before it is untouched" if os.path.exists(path) else "there is none before it"  # noqa: PTH110
        raise UserError(f"cannot write {printable(path)}: {reason(error)}; {kept}") from None


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; rename it to `path` at the end, remove it on failure.

    For the process that has the `exclusive_lock` of `path`. Remains of killed processes are removed first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent, path.name)
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}-", suffix=PARTIAL, dir=path.parent))
    try:
        yield partial
        for inner in partial.rglob("*"):
            _to_disk(inner)
        partial.chmod(0o777 & ~_umask())
        partial.rename(path)
        _to_disk(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the exclusive lock on `path`; wait for another process that has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}{LOCK}")
    with _open_lock(lock) as handle:
        _lock(handle, fcntl.LOCK_EX)
        yield


def try_lock(folder: Path) -> IO[bytes] | None:
    """Lock the folder for this process; return the handle to keep, or None if another process has the lock.

    The kernel releases it when the process ends for any reason. On a file system without locks, no process is kept
    out. This is a POSIX lock: it works over NFS, and child processes do not inherit it.
    """
    handle = _open_lock(folder / LOCK)
    if _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB):
        return handle
    handle.close()
    return None


def sweep(folder: Path, name: str = "") -> None:
    """Remove temporary files of killed processes: for all destinations in the folder, or for `name` only.

    For the process that has their lock.
    """
    for partial in folder.iterdir():
        ours = partial.name.startswith(f".{name}-" if name else ".") and partial.name.endswith(PARTIAL)
        if ours or (not name and _OF_SAFETENSORS(partial.name)):
            if partial.is_dir():
                shutil.rmtree(partial, ignore_errors=True)
            else:
                partial.unlink(missing_ok=True)


# Temporary names of safetensors, which also writes and renames.
_OF_SAFETENSORS = re.compile(r"\.tmp\w{6}").fullmatch


def _open_lock(path: Path) -> IO[bytes]:
    """Open or create a lock file; raise for a pipe, which would block, and for a link, which may lead elsewhere."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UserError(f"cannot lock {printable(path)}: it is not a regular file; delete it, or write elsewhere")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "r+b")


def _check_replaceable(path: Path) -> None:
    """Raise OSError if `path` is not a regular file; /dev/stdout is a link into /proc."""
    link = path.is_symlink()
    if (path.exists() and not path.is_file()) or (link and str(path.readlink()).startswith("/proc/")):
        raise OSError(errno.EINVAL, "it is not a regular file")


def _lock(handle: IO[bytes], how: int) -> bool:
    try:
        fcntl.lockf(handle, how)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


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
