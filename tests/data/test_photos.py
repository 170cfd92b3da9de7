import logging
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from data.photographs import write_photos
from stepnet.data import Batches
from stepnet.data.folders import find_images, photos
from stepnet.data.normalise import Normalisation
from stepnet.data.photos import Photos, cache_key, decode_once
from stepnet.errors import UserError

PLAIN = Normalisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


@pytest.fixture
def source(tmp_path: Path) -> Photos:
    write_photos(tmp_path)
    found = find_images(tmp_path)
    return photos(found.train, found.classes, 224)


def test_evaluation_is_torchvisions_centre_crop_to_one_grey_level(source: Photos) -> None:
    from torchvision.transforms.v2 import functional as F

    [(images, labels)] = Batches(source, PLAIN, 6).epoch()
    assert images.shape == (6, 3, 224, 224) and labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert images.is_contiguous(memory_format=torch.channels_last)
    for path, image in zip(source.paths, images, strict=True):
        original = Image.open(path).convert("RGB")
        expected = F.pil_to_tensor(F.center_crop(F.resize(original, [256]), [224]))
        difference = ((image * 255).round() - expected).abs()
        assert (
            difference.max() <= 1 and difference.mean() < 0.1
        )  # Pillow keeps the edges of the crop in single precision


def test_training_views_are_functions_of_seed_epoch_and_position(source: Photos) -> None:
    def epoch(number: int, batch_size: int = 4, **options: Any) -> torch.Tensor:
        return torch.cat([images for images, _ in Batches(source, PLAIN, batch_size, 5, **options).epoch(number)])

    torch.manual_seed(0)
    before = torch.get_rng_state()
    whole = epoch(0)
    assert torch.equal(before, torch.get_rng_state())  # the run's own generator is not touched
    assert torch.equal(whole, epoch(0, batch_size=6))
    assert not torch.equal(whole, epoch(1))
    ranks = [epoch(0, batch_size=6, rank=rank, world_size=2) for rank in range(2)]
    assert torch.equal(whole, torch.cat(ranks))
    started_later = torch.cat([images for images, _ in Batches(source, PLAIN, 4, 5).epoch(0, start=1)])
    assert torch.equal(whole[4:], started_later)


def test_any_number_of_threads_gives_the_same(source: Photos) -> None:
    alone, helped = (
        Batches(Photos(source.paths, source.labels, source.classes, workers=workers), PLAIN, 4, seed=1).epoch(0)
        for workers in (1, 3)
    )
    for (images, labels), (same_images, same_labels) in zip(alone, helped, strict=True):
        assert torch.equal(images, same_images) and torch.equal(labels, same_labels)


def test_an_epoch_that_is_left_early_leaves_no_threads(source: Photos) -> None:
    before = threading.active_count()
    batches = Batches(source, PLAIN, 1, seed=1).epoch(0)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_damaged_images_are_reported_with_their_path_and_left_out(
    source: Photos, caplog: pytest.LogCaptureFixture
) -> None:
    cut, empty = source.paths[1], source.paths[4]
    cut.write_bytes(cut.read_bytes()[:-200])
    empty.write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):  # the second time they are left out in silence
            [(images, labels)] = Batches(source, PLAIN, 6).epoch()
    assert len(images) == 4 and labels.tolist() == [0, 0, 1, 1]
    assert source.unreadable == {cut, empty}
    assert [str(path) in message for path, message in zip((cut, empty), caplog.messages, strict=True)] == [True, True]
    assert caplog.messages[1].endswith("2 so far")


def test_a_batch_of_broken_images_stops(source: Photos) -> None:
    for path in source.paths:
        path.write_bytes(b"no image")
    with pytest.raises(UserError, match="none of the 6 images"):
        list(Batches(source, PLAIN, 6).epoch())
    with pytest.raises(UserError, match="none of 6 images"):
        source.statistics()


def test_the_statistics_are_those_of_the_evaluation_views(source: Photos) -> None:
    [(images, _)] = Batches(source, PLAIN, 6).epoch()
    found = source.statistics()
    assert np.allclose(found.mean, images.double().mean((0, 2, 3)), atol=1e-6)
    assert np.allclose(found.std, images.double().std((0, 2, 3), correction=0), atol=1e-6)


@pytest.fixture
def small(tmp_path: Path) -> Photos:
    write_photos(tmp_path / "photos")
    found = find_images(tmp_path / "photos")
    return photos(found.train, found.classes, 32)


def test_images_are_resized_cut_and_kept(small: Photos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = decode_once(small, tmp_path / "cache")
    assert images.images.shape == (6, 32, 32, 3) and images.labels.tolist() == [0, 0, 0, 1, 1, 1]
    with Image.open(small.paths[0]) as file:  # 300 x 400: the shorter side becomes 32
        resized = np.asarray(file.convert("RGB").resize((32, 42), Image.Resampling.BILINEAR))
    assert np.array_equal(images.images[0], resized[5:37])
    monkeypatch.setattr(Photos, "decode_all", lambda *_, **__: pytest.fail("decoded again"))
    again = decode_once(small, tmp_path / "cache")
    assert np.array_equal(again.images, images.images)


def test_another_file_time_or_size_is_decoded_anew(small: Photos) -> None:
    first = cache_key(small)
    assert first == cache_key(small)
    os.utime(small.paths[0], (1, 1))
    later = cache_key(small)
    larger = cache_key(Photos(small.paths, small.labels, small.classes, 48))
    fewer = cache_key(Photos(small.paths[1:], small.labels[1:], small.classes, 32))
    assert len({first, later, larger, fewer}) == 4


def test_what_cannot_be_decoded_is_left_out_and_told(
    small: Photos, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small.paths[1].unlink()
    small.paths[1].symlink_to("nowhere")
    with caplog.at_level(logging.WARNING):
        images = decode_once(small, tmp_path / "cache")
    assert images.labels.tolist() == [0, 0, 1, 1, 1] and len(images) == 5
    assert str(small.paths[1]) in caplog.messages[0]
    for path in small.paths:
        path.write_bytes(b"no image")
    with pytest.raises(UserError, match="none of 6 images can be decoded"):
        decode_once(small, tmp_path / "other")
    assert [path for path in (tmp_path / "other").iterdir() if path.is_dir()] == []


def test_without_a_place_to_write_they_stay_in_memory(small: Photos, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    images = decode_once(small, tmp_path / "file" / "cache")
    assert len(images) == 6


@pytest.mark.parametrize("name", ["images.npy", "kept.json"])
def test_a_damaged_copy_says_what_to_delete(name: str, small: Photos, tmp_path: Path) -> None:
    decode_once(small, tmp_path / "cache")
    (tmp_path / "cache" / cache_key(small) / name).write_bytes(b"[")
    with pytest.raises(UserError, match=rf"delete {tmp_path / 'cache'}/\w+, and it is made again"):
        decode_once(small, tmp_path / "cache")
