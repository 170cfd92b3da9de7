import builtins
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from stepnet.data import Batches, evaluation_batches, get_data, training_batches
from stepnet.data.imagenet import ImageFolder
from stepnet.data.normalise import Normalisation
from stepnet.errors import UserError

PLAIN = Normalisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two classes; colour, grey and CMYK images of several sizes."""
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        for label, name in enumerate(("n02", "n01")):
            folder = tmp_path / "imagenet" / split / name
            folder.mkdir(parents=True)
            for i, (mode, size) in enumerate([("RGB", (300, 400)), ("L", (500, 260)), ("CMYK", (240, 230))]):
                noise = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                image = Image.fromarray(noise).resize(size).convert(mode)
                image.save(folder / f"{label}{i}.JPEG")
    return tmp_path


def scan(folder: Path) -> ImageFolder:
    return ImageFolder.scan(folder, workers=0)


def test_classes_are_the_sorted_folders(root: Path) -> None:
    data = get_data("imagenet", root)
    assert isinstance(data.train, ImageFolder)
    assert data.train.classes == ("n01", "n02")
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert [path.parent.name for path in data.train.paths] == ["n01"] * 3 + ["n02"] * 3
    assert (data.num_classes, data.in_channels, data.image_size) == (2, 3, 224)


def test_evaluation_is_the_centre_crop(root: Path) -> None:
    from torchvision.transforms.v2 import functional as F

    source = scan(root / "imagenet" / "val")
    [(images, labels)] = Batches(source, PLAIN, 6).epoch()
    assert images.shape == (6, 3, 224, 224) and labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert images.is_contiguous(memory_format=torch.channels_last)
    for path, image in zip(source.paths, images, strict=True):
        original = Image.open(path).convert("RGB")
        expected = F.pil_to_tensor(F.center_crop(F.resize(original, [256]), [224]))
        assert torch.equal((image * 255).round().byte(), expected)


def test_training_views_are_functions_of_seed_epoch_and_position(root: Path) -> None:
    source = scan(root / "imagenet" / "train")

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


def test_workers_give_what_one_process_gives(root: Path) -> None:
    folder = root / "imagenet" / "train"
    alone, helped = (
        Batches(ImageFolder.scan(folder, workers=workers), PLAIN, 4, seed=1).epoch(0) for workers in (0, 1)
    )
    for (images, labels), (same_images, same_labels) in zip(alone, helped, strict=True):
        assert torch.equal(images, same_images) and torch.equal(labels, same_labels)


def test_truncated_images_are_reported_with_their_path_and_left_out(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = scan(root / "imagenet" / "train")
    cut, empty = source.paths[1], source.paths[4]
    cut.write_bytes(cut.read_bytes()[:-200])
    empty.write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):  # the second time they are skipped in silence
            [(images, labels)] = Batches(source, PLAIN, 6).epoch()
    assert len(images) == 4 and labels.tolist() == [0, 0, 1, 1]
    assert source.unreadable == {cut, empty}
    assert [str(path) in message for path, message in zip((cut, empty), caplog.messages, strict=True)] == [True, True]
    assert caplog.messages[1].endswith("2 so far")


def test_a_batch_of_broken_images_stops(root: Path) -> None:
    source = scan(root / "imagenet" / "train")
    for path in source.paths:
        path.write_bytes(b"no image")
    with pytest.raises(UserError, match="none of the 6 images"):
        list(Batches(source, PLAIN, 6).epoch())


def test_missing_folders_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a folder of class folders"):
        get_data("imagenet", tmp_path)
    (tmp_path / "imagenet" / "train").mkdir(parents=True)
    with pytest.raises(UserError, match="holds no images"):
        get_data("imagenet", tmp_path)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (ImportError("No module named 'torchvision'"), r"pip install 'stepnet\[imagenet\]'"),
        (RuntimeError("operator torchvision::nms does not exist\nmore"), "install builds of the same kind"),
    ],
)
def test_without_torchvision_one_line_says_what_to_do(
    failure: Exception, message: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordinary = builtins.__import__

    def fails(name: str, *rest: Any) -> Any:
        if name.startswith("torchvision"):
            raise failure
        return ordinary(name, *rest)

    data = get_data("imagenet", root)
    monkeypatch.setattr(builtins, "__import__", fails)
    for batches in (training_batches(data, 2, seed=0), evaluation_batches(data, 2)):
        with pytest.raises(UserError, match=message) as raised:
            next(batches.epoch())
        assert "\n" not in str(raised.value)
