import logging
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.photographs import write_photos
from stepnet.data.decoded import decode_once, fingerprint
from stepnet.data.folders import find_images, photos
from stepnet.data.photos import Photos
from stepnet.errors import UserError


@pytest.fixture
def source(tmp_path: Path) -> Photos:
    write_photos(tmp_path / "photos")
    found = find_images(tmp_path / "photos")
    return photos(found.train, found.classes, 32)


def test_images_are_resized_cut_and_kept(source: Photos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = decode_once(source, tmp_path / "cache")
    assert images.images.shape == (6, 32, 32, 3) and images.labels.tolist() == [0, 0, 0, 1, 1, 1]
    with Image.open(source.paths[0]) as file:  # 300 x 400: the shorter side becomes 32
        resized = np.asarray(file.convert("RGB").resize((32, 42), Image.Resampling.BILINEAR))
    assert np.array_equal(images.images[0], resized[5:37])
    monkeypatch.setattr(Photos, "decode_all", lambda *_, **__: pytest.fail("decoded again"))
    again = decode_once(source, tmp_path / "cache")
    assert np.array_equal(again.images, images.images)


def test_another_file_time_or_size_is_decoded_anew(source: Photos) -> None:
    first = fingerprint(source)
    assert first == fingerprint(source)
    os.utime(source.paths[0], (1, 1))
    later = fingerprint(source)
    larger = fingerprint(Photos(source.paths, source.labels, source.classes, 48))
    fewer = fingerprint(Photos(source.paths[1:], source.labels[1:], source.classes, 32))
    assert len({first, later, larger, fewer}) == 4


def test_what_cannot_be_decoded_is_left_out_and_told(
    source: Photos, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source.paths[1].unlink()
    source.paths[1].symlink_to("nowhere")
    with caplog.at_level(logging.WARNING):
        images = decode_once(source, tmp_path / "cache")
    assert images.labels.tolist() == [0, 0, 1, 1, 1] and len(images) == 5
    assert str(source.paths[1]) in caplog.messages[0]
    for path in source.paths:
        path.write_bytes(b"no image")
    with pytest.raises(UserError, match="none of 6 images can be decoded"):
        decode_once(source, tmp_path / "other")
    assert [path for path in (tmp_path / "other").iterdir() if path.is_dir()] == []


def test_without_a_place_to_write_they_stay_in_memory(source: Photos, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    images = decode_once(source, tmp_path / "file" / "cache")
    assert len(images) == 6


@pytest.mark.parametrize("name", ["images.npy", "kept.json"])
def test_a_damaged_copy_says_what_to_delete(name: str, source: Photos, tmp_path: Path) -> None:
    decode_once(source, tmp_path / "cache")
    (tmp_path / "cache" / fingerprint(source) / name).write_bytes(b"[")
    with pytest.raises(UserError, match=rf"delete {tmp_path / 'cache'}/\w+, and it is made again"):
        decode_once(source, tmp_path / "cache")
