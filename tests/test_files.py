import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stepnet import UserError
from stepnet.files import atomic_file, atomic_folder, exclusive_lock, open_file, read_file, sweep, try_lock


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with atomic_file(path) as partial:
        partial.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What reaches the disk, in order: ("fsync", path) and ("rename", from, to)."""
    done: list[tuple[str, ...]] = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def recorded_fsync(descriptor: int) -> None:
        done.append(("fsync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        fsync(descriptor)

    def recorded(move: Callable[..., None]) -> Callable[..., None]:
        def moved(source: Path, target: Path) -> None:
            done.append(("rename", str(source), str(target)))
            move(source, target)

        return moved

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded(replace))
    monkeypatch.setattr(os, "rename", recorded(rename))
    return done


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, writes: list[tuple[str, ...]]) -> None:
    path = tmp_path / "file"
    with atomic_file(path) as partial:
        partial.write_text("new")
    temporary = str(partial)
    assert writes == [("fsync", temporary), ("rename", temporary, str(path)), ("fsync", str(tmp_path))]


def test_a_folder_is_on_the_disk_before_it_has_its_name(tmp_path: Path, writes: list[tuple[str, ...]]) -> None:
    path = tmp_path / "folder"
    with atomic_folder(path) as partial:
        (partial / "inner").mkdir()
        (partial / "inner" / "a").write_text("a")
    temporary = str(partial)
    inside = {("fsync", f"{temporary}/inner"), ("fsync", f"{temporary}/inner/a")}
    rename = writes.index(("rename", temporary, str(path)))
    assert inside <= set(writes[:rename])
    assert writes[rename + 1 :] == [("fsync", str(tmp_path))]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as partial:
        partial.write_text("half of the n")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with atomic_folder(path) as partial:
        (partial / "a").write_text("a")
        assert not path.exists()
    assert [inner.name for inner in path.iterdir()] == ["a"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_folder_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "folder") as partial:
        (partial / "a").write_text("a")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_made_by_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    under_way, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        with exclusive_lock(path):
            os.write(under_way[1], b"x")
            os.read(done[0], 1)
            path.mkdir()
        os._exit(0)
    os.read(under_way[0], 1)
    assert not path.exists()
    threading.Timer(0.2, os.write, (done[1], b"x")).start()
    with exclusive_lock(path):
        assert path.exists()
    os.waitpid(child, 0)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir])
def test_only_regular_files_are_opened(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "file"
    make(path)
    with pytest.raises(UserError, match=f"{path} is not a regular file"):
        read_file(path, 100)


def test_a_file_is_read_up_to_the_size_that_is_expected(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_file(path, 5) == b"12345"
    with pytest.raises(UserError, match="holds 5 bytes: expected at most 4"):
        open_file(path, 4)


@pytest.mark.parametrize("name", ["missing", "n" * 300, "zero\0byte", "\udcff\nx"])
def test_a_name_that_cannot_be_opened_is_told_in_one_short_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read") as raised:
        read_file(tmp_path / name, 100)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 400
    str(raised.value).encode()


def test_files_have_the_modes_of_ordinary_ones(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.write_text("")
    with atomic_file(tmp_path / "whole") as partial:
        partial.write_text("")
    assert (tmp_path / "whole").stat().st_mode == ordinary.stat().st_mode


def test_a_full_disk_is_one_line_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for kept in ("there is none before it", "the one before it is untouched"):
        with (
            pytest.raises(UserError, match=f"cannot write {path}: No space left; {kept}"),
            atomic_file(path) as partial,
        ):
            partial.write_text("half of the n")
            raise OSError(errno.ENOSPC, "No space left")
        path.write_text("old")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    for name in ("file", ".hidden", "a.partial"):
        (tmp_path / name).write_text("mine")
    child = os.fork()
    if not child:
        with atomic_file(tmp_path / "file") as partial:
            partial.write_text("half of the n")
            os._exit(0)  # as SIGKILL would: nothing is cleaned up
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 4
    sweep(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        ("file", ".hidden", "a.partial"), "mine"
    )


def test_folders_that_a_killed_process_left_are_swept(tmp_path: Path) -> None:
    for name in (".folder-abc.partial", ".other-abc.partial", ".folder2-abc.partial", "folder"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "inside").touch()
    sweep(tmp_path, "folder")
    assert {path.name for path in tmp_path.iterdir()} == {".other-abc.partial", ".folder2-abc.partial", "folder"}


def test_one_process_holds_a_folder_until_it_ends(tmp_path: Path) -> None:
    def another_can_hold_it() -> bool:
        child = os.fork()
        if not child:
            os._exit(try_lock(tmp_path) is not None)
        return bool(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    assert another_can_hold_it()
    held = try_lock(tmp_path)
    assert held is not None
    assert not another_can_hold_it()
    held.close()
    assert another_can_hold_it()


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(path))


SPECIAL = {"pipe": os.mkfifo, "socket": _socket, "folder": Path.mkdir}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("linked", [False, True])
def test_what_is_not_a_regular_file_is_never_replaced(tmp_path: Path, kind: str, linked: bool) -> None:
    there = tmp_path / "there"
    SPECIAL[kind](there)
    before = there.stat()
    target = tmp_path / "link" if linked else there
    if linked:
        target.symlink_to(there)
    with pytest.raises(UserError, match=r"cannot write .*: it is not a regular file"), atomic_file(target):
        pytest.fail("refused before the work that it takes to make a file")
    assert (there.stat().st_ino, there.stat().st_mode) == (before.st_ino, before.st_mode)
    assert target.is_symlink() == linked and len(list(tmp_path.iterdir())) == 1 + linked


def test_a_pipe_that_appears_while_a_file_is_written_stays(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(UserError, match="not a regular file"), atomic_file(path) as partial:
        partial.write_text("new")
        os.mkfifo(path)
    assert path.is_fifo() and list(tmp_path.iterdir()) == [path]


def test_a_link_to_standard_output_stays(tmp_path: Path) -> None:
    link, descriptor = tmp_path / "stdout", os.open(tmp_path / "redirected", os.O_CREAT | os.O_WRONLY)
    link.symlink_to(f"/proc/self/fd/{descriptor}")  # as /dev/stdout is, here with `> redirected`
    with pytest.raises(UserError, match="not a regular file"), atomic_file(link):
        pass
    os.close(descriptor)
    assert link.is_symlink()


@pytest.mark.parametrize("kind", [*SPECIAL, "link to nothing", "link to a pipe"])
def test_a_lock_that_is_not_a_regular_file_is_one_line(tmp_path: Path, kind: str) -> None:
    lock, elsewhere = tmp_path / ".lock", tmp_path / "elsewhere"
    if kind in SPECIAL:
        SPECIAL[kind](lock)
    else:
        lock.symlink_to(elsewhere)
        if kind == "link to a pipe":
            os.mkfifo(elsewhere)
    with pytest.raises(UserError, match=r"cannot lock .*\.lock: it is not a regular file"):
        try_lock(tmp_path)
    assert kind != "link to nothing" or not elsewhere.exists()
    lock.rename(tmp_path / ".made.lock")
    with pytest.raises(UserError, match="cannot lock"), exclusive_lock(tmp_path / "made"):
        pass
