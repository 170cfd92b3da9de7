"""A file from the web: with progress, resumed where it broke off, and checked."""

from __future__ import annotations

import hashlib
import http.client
import re
import urllib.error
import urllib.request
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from stepnet.errors import UserError

TIMEOUT = 30.0  # seconds without a byte
CHUNK = 2**18
ATTEMPTS = 5  # connections that broke off, one after the other, before a person is asked


class Unreachable(UserError):
    """The server did not give the file: no connection, or an error in place of the content."""


def download(url: str, path: Path, md5: str) -> None:
    """Fetch `url` to `path`. What has arrived stands in `path`.part until it is whole and its md5 is right."""
    if path.is_file() and md5_of(path) == md5:  # an earlier fetch was stopped after it
        return
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    resumed = part.exists()
    _complete(url, part)
    if resumed and md5_of(part) != md5:  # perhaps the beginning was of another version: once more from zero
        part.unlink()
        _complete(url, part)
    found = md5_of(part)
    if found != md5:
        part.unlink()
        raise UserError(f"{url} has the md5 {found} where {md5} is expected: it was deleted; try again later")
    part.replace(path)


def md5_of(path: Path) -> str:
    """The md5 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _complete(url: str, part: Path) -> None:
    """Append to `part` until the server has no more, over as many connections as it takes."""
    for _ in range(ATTEMPTS):
        if _append(url, part):
            return
    raise UserError(f"{url} broke off {ATTEMPTS} times at {part.stat().st_size} bytes: run again to go on from there")


def _append(url: str, part: Path) -> bool:
    """Ask for what `part` lacks and append it; True when it is whole, False when the connection broke off."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    if request.type not in ("https", "http"):
        raise UserError(f"{url} is no web address: expected https://")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to send
            return True
        raise Unreachable(f"{url} cannot be had: the server says {error.code} {error.reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise Unreachable(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from None
    with response, _bar() as bar:
        if request.type == "https" and not response.url.startswith("https:"):
            raise Unreachable(f"{url} leads to {response.url}, which is not https")
        goes_on = response.status == 206 and _start(response) == have
        begin = have if goes_on else 0
        length = response.headers.get("Content-Length")
        total = begin + int(length) if length else None
        task = bar.add_task(part.name.removesuffix(".part"), total=total, completed=begin)
        with part.open("ab" if goes_on else "wb") as file:
            while True:
                try:
                    chunk = response.read(CHUNK)
                except (http.client.HTTPException, OSError):  # an SSL error too; a full disk is `write`'s
                    return False
                if not chunk:
                    break
                file.write(chunk)
                bar.advance(task, len(chunk))
    return total is None or part.stat().st_size == total


def _start(response: http.client.HTTPResponse) -> int | None:
    """Where the content starts that the server sends: `Content-Range: bytes START-END/TOTAL`."""
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
