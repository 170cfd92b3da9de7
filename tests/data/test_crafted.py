"""Each file of the corpus is answered in one line; nothing in it is run, and it takes little memory and time."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from data.crafted import NO_ARCHIVES, NO_ARRAYS, NO_IMAGES, ODD_IMAGES, write_all
from stepnet.data.arrays import map_array, read_arrays
from stepnet.data.images import UnreadableImage, centre_view, random_view, read_view
from stepnet.errors import UserError
from stepnet.files import open_file

MEMORY = 2**30  # bytes that one file may ask for


def refused(raised: pytest.ExceptionInfo[UserError], path: Path) -> None:
    message = str(raised.value)
    assert "\n" not in message and len(message) < 500 and path.name in message
    assert not list(Path.cwd().glob("it-ran"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, with a Ghostscript that would leave a mark."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gs").write_text("#!/bin/sh\ntouch it-ran\n")
    (tmp_path / "bin" / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def little_memory() -> object:
    """The process may not grow by more than MEMORY: a file that asks for more fails here."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("name", NO_IMAGES)
def test_what_is_no_image_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    NO_IMAGES[name](path)
    for look, exact in ((centre_view(224), True), (random_view(1), False)):
        with pytest.raises(UnreadableImage) as raised:
            read_view(path, 224, look, exact=exact)
        refused(raised, path)


@pytest.mark.parametrize("name", ODD_IMAGES)
def test_an_odd_image_takes_no_more_than_its_view(name: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    ODD_IMAGES[name](path)
    for look in (centre_view(224), *map(random_view, range(5))):
        for exact in (True, False):
            assert read_view(path, 224, look, exact=exact).shape == (224, 224, 3)


@pytest.mark.parametrize("name", NO_ARRAYS)
def test_what_is_no_array_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "images.npy"
    path.write_bytes(NO_ARRAYS[name])
    for shape in ((1,), (10,), (100,), (10**15,)):
        with pytest.raises(UserError) as raised:
            map_array(path, np.dtype(np.uint8), shape)
        refused(raised, path)


@pytest.mark.parametrize("name", NO_ARCHIVES)
def test_what_is_no_archive_of_arrays_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "cifar10.npz"
    path.write_bytes(NO_ARCHIVES[name])
    with pytest.raises(UserError) as raised:
        read_arrays(path, ["x"], 2**20)
    refused(raised, path)


def test_the_script_writes_the_corpus_and_none_of_it_opens_as_something_else(tmp_path: Path) -> None:
    write_all(tmp_path / "corpus")
    files = [path for path in (tmp_path / "corpus").rglob("*") if not path.is_dir()]
    assert len(files) >= len(NO_IMAGES) + len(ODD_IMAGES) + len(NO_ARRAYS) + len(NO_ARCHIVES) - 1
    for path in files:
        try:
            open_file(path, 2**28).close()
        except UserError as error:
            assert "\n" not in str(error)
