"""Downloads from a server on this machine, which can be told to misbehave."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stepnet.data import fetching as module
from stepnet.data.fetching import Unreachable, download, extract
from stepnet.errors import UserError

CONTENT = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    url: str = ""
    content: bytes = CONTENT
    ranges: bool = True
    break_after: list[int] = field(default_factory=list)  # bytes before each of the next connections breaks
    asked: list[str | None] = field(default_factory=list)  # the Range of each request
    status: int | None = None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")  # a proxy of this machine is not asked
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            state.asked.append(asked)
            if state.status:
                self.send_error(state.status)
                return
            begin = start(asked) if state.ranges else 0
            if asked and state.ranges and begin >= len(state.content):
                self.send_error(416)
                return
            body = state.content[begin:]
            self.send_response(206 if asked and state.ranges else 200)
            if asked and state.ranges:
                self.send_header("Content-Range", f"bytes {begin}-{len(state.content) - 1}/{len(state.content)}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.break_after.pop(0)] if state.break_after else body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.url = f"http://127.0.0.1:{http.server_port}/file"
        yield state
        http.shutdown()
        thread.join()


def start(asked: str | None) -> int:
    return int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0


def test_a_whole_file_arrives(server: Server, tmp_path: Path) -> None:
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert server.asked == [None]


def test_a_connection_that_breaks_is_taken_up_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.break_after = [300_000, 200_000]
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [start(asked) for asked in server.asked] == [0, 294912, 491520]  # whole pieces of 16 kB are kept


def test_the_next_run_goes_on_where_the_last_gave_up(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ATTEMPTS", 1)
    server.break_after = [400_000]
    with pytest.raises(UserError, match="was interrupted 1 times: run the same command to resume the download"):
        download(server.url, tmp_path / "file", SHA256)
    assert [path.name for path in tmp_path.iterdir()] == ["file.part"]
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert start(server.asked[1]) == 393216


def test_a_server_without_ranges_is_asked_from_the_beginning(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-", None]


def test_a_part_that_is_whole_already_is_taken(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_full_disk_is_not_taken_for_a_broken_connection(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        download(server.url, tmp_path / "file", SHA256)
    assert server.asked == [None]


def test_a_part_of_another_version_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"x" * 1000)
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-", None]


def test_a_wrong_checksum_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(UserError, match=f"where {SHA256} is expected"):
        download(server.url, tmp_path / "file", SHA256)
    assert list(tmp_path.iterdir()) == []


def test_no_server_is_told_apart(server: Server, tmp_path: Path) -> None:
    server.status = 503
    with pytest.raises(Unreachable, match="the server says 503 Server Error"):
        download(server.url, tmp_path / "file", SHA256)
    with pytest.raises(Unreachable, match="cannot be reached"):
        download("http://127.0.0.1:1/file", tmp_path / "file", SHA256)


def test_other_addresses_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)
    with pytest.raises(UserError, match="cannot be reached: No connection adapters"):
        download(secret.as_uri(), tmp_path / "file", SHA256)
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def write_archive(path: Path, name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> str:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, 5 if kind == tarfile.REGTYPE else 0
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(info, io.BytesIO(b"hello"))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_archive_with_the_right_checksum_is_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "archive.tar.gz"
    extract(archive, write_archive(archive, "top/file"), tmp_path / "out")
    assert (tmp_path / "out" / "top" / "file").read_bytes() == b"hello"


def test_the_checksum_is_looked_at_before_anything_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "archive.tar.gz"
    sha256 = write_archive(archive, "top/file")
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
        extract(archive, write_archive(archive, name, kind, link), tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} <= {"archive.tar.gz", "out"}


def test_a_server_in_trouble_costs_nothing_that_has_arrived(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:300_000])
    server.status = 503
    with pytest.raises(Unreachable, match="503"):
        download(server.url, tmp_path / "file", SHA256)
    server.status = None
    download(server.url, tmp_path / "file", SHA256)
    assert server.asked[-1] == "bytes=300000-" and (tmp_path / "file").read_bytes() == CONTENT
