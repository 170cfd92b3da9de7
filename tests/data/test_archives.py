import io
import os
import tarfile
from pathlib import Path

import pytest

from stepnet.data import archives
from stepnet.data.archives import extract
from stepnet.errors import UserError


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, 5 if kind == tarfile.REGTYPE else 0
    return info


def write(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(b"hello") if info.isfile() else None)
    return path


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_the_files_of_one_folder_are_written(tmp_path: Path) -> None:
    archive = write(
        tmp_path / "a.tgz",
        member("top", tarfile.DIRTYPE),
        member("top/a"),
        member("./top/deep/b"),
        member("other/c"),
        member("top-level"),
    )
    extract(archive, tmp_path / "out", top="top")
    assert everything_below(tmp_path / "out") == {"a", "deep", "deep/b"}
    assert (tmp_path / "out" / "deep" / "b").read_bytes() == b"hello"


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("top/../../outside"),
        member("/absolute"),
        member("top\\..\\outside"),
        member("c:outside"),
        member("top/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("top/hard", tarfile.LNKTYPE, "../outside"),
        member("top/device", tarfile.CHRTYPE),
        member("top/pipe", tarfile.FIFOTYPE),
        member("top/a"),
    ],
    ids=lambda bad: f"{bad.name} {bad.type!r}",
)
def test_what_leaves_the_archive_is_refused_before_anything_is_written(bad: tarfile.TarInfo, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    archive = write(inner / "a.tgz", member("top/a"), bad)
    before = everything_below(tmp_path)
    with pytest.raises(UserError, match="refused, and nothing of it was written"):
        extract(archive, inner / "out", top="top")
    assert everything_below(tmp_path) == before


def test_modes_and_owners_are_not_taken(tmp_path: Path) -> None:
    info = member("top/a")
    info.mode, info.uid = 0o4777, 12345
    extract(write(tmp_path / "a.tgz", info), tmp_path / "out", top="top")
    status = (tmp_path / "out" / "a").stat()
    assert status.st_mode & 0o7111 == 0
    assert status.st_uid == os.getuid()


def test_an_archive_that_grows_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_CONTENT", 9)
    archive = write(tmp_path / "a.tgz", member("top/a"), member("top/b"))
    with pytest.raises(UserError, match="unpacks to more than 9 bytes"):
        extract(archive, tmp_path / "out", top="top")
    assert not (tmp_path / "out").exists()


def test_broken_archives_are_refused(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.tgz", *(member(f"top/{i}") for i in range(500)))
    whole = archive.read_bytes()
    for content in (b"", b"no archive", whole[: len(whole) // 2]):
        archive.write_bytes(content)
        with pytest.raises(UserError, match="is no whole archive") as refused:
            extract(archive, tmp_path / "out", top="top")
        assert "\n" not in str(refused.value)
