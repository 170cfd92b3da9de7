"""Download a file, resuming and verifying it; unpack an archive."""

from __future__ import annotations

import hashlib
import sys
import tarfile
from pathlib import Path

from stepnet.errors import UserError, first_line

CHUNK = 2**14
ATTEMPTS = 5  # interrupted connections in a row before giving up


class Unreachable(UserError):
    """The server did not give the file: no connection, or an error in place of the content."""


def download(url: str, path: Path, sha256: str) -> None:
    """Download `url` to `path`; an incomplete or unverified file is `path`.part."""
    import pooch
    import requests

    part = path.with_name(f"{path.name}.part")
    for _ in range(ATTEMPTS):
        have = part.stat().st_size if part.exists() else 0
        rest = pooch.HTTPDownloader(
            progressbar=sys.stderr.isatty(),
            chunk_size=CHUNK,
            headers={"Range": f"bytes={have}-"} if have else {},
        )
        try:
            with part.open("ab") as file:
                rest(url, file, None)
        except requests.HTTPError as error:
            whole = have and error.response.status_code == requests.codes.requested_range_not_satisfiable
            if not have:
                part.unlink()
            if not whole:
                raise Unreachable(f"{url} cannot be downloaded: the server says {first_line(error)}") from None
        except requests.RequestException as error:
            if isinstance(error, requests.exceptions.ChunkedEncodingError) or part.stat().st_size > have:
                continue  # interrupted: resume from there
            if not have:
                part.unlink()
            cause = getattr(error.args[0], "reason", error)  # the cause of urllib3's retries
            raise Unreachable(f"{url} cannot be reached: {first_line(cause)}") from None
        actual = sha256_of(part)
        if actual == sha256:
            part.replace(path)
            return
        part.unlink()
        if not have:  # else its beginning may have been of another version: start again from zero
            raise UserError(
                f"{url} has the sha256 {actual} where {sha256} is expected: it was deleted; try again later"
            )
    raise UserError(f"{url} was interrupted {ATTEMPTS} times: run the same command to resume the download")


def extract(archive: Path, sha256: str, folder: Path) -> None:
    """Verify the .tar.gz archive, then unpack it into `folder`."""
    check_archive(archive, sha256)
    with tarfile.open(archive, "r:gz") as tar:
        tar.extractall(folder, filter="data")


def check_archive(archive: Path, sha256: str) -> None:
    """Raise if the archive has another sha256."""
    actual = sha256_of(archive)
    if actual != sha256:
        raise UserError(
            f"{archive.name} has the sha256 {actual} where {sha256} is expected: nothing of it was unpacked"
        )


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
