import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from stepnet.data.archives import extract
from stepnet.errors import UserError


def write(path: Path, name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> str:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, 5 if kind == tarfile.REGTYPE else 0
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(info, io.BytesIO(b"hello"))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_archive_with_the_right_checksum_is_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "archive.tar.gz"
    extract(archive, write(archive, "top/file"), tmp_path / "out")
    assert (tmp_path / "out" / "top" / "file").read_bytes() == b"hello"


def test_the_checksum_is_looked_at_before_anything_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "archive.tar.gz"
    sha256 = write(archive, "top/file")
    archive.write_bytes(archive.read_bytes()[:-1] + b"?")
    monkeypatch.setattr(tarfile, "open", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(UserError, match=f"where {sha256} is expected: nothing of it was unpacked"):
        extract(archive, sha256, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "kind", "link"),
    [("../file", tarfile.REGTYPE, ""), ("link", tarfile.SYMTYPE, "/etc/passwd"), ("device", tarfile.CHRTYPE, "")],
)
def test_nothing_is_written_outside_of_the_folder(name: str, kind: bytes, link: str, tmp_path: Path) -> None:
    archive = tmp_path / "archive.tar.gz"
    with pytest.raises(tarfile.FilterError):
        extract(archive, write(archive, name, kind, link), tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} <= {"archive.tar.gz", "out"}
