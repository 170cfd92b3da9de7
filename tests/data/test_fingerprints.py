"""What a fingerprint of a data set notices, and what it does not depend on."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from data.photographs import write_photos
from stepnet.data import Data, ImageSet, get_data
from stepnet.data import fingerprints as module
from stepnet.data.fingerprints import fingerprint
from stepnet.data.folders import find_images, photos


def images(count: int = 40) -> ImageSet:
    rng = np.random.default_rng(0)
    return ImageSet(rng.integers(0, 256, (count, 4, 4, 1), np.uint8), np.arange(count) % 2, ("no", "yes"))


def of(train: ImageSet) -> str:
    return fingerprint(Data("made", train, dataclasses.replace(images(4), classes=train.classes)))


def test_it_says_the_sizes_and_is_the_same_every_time() -> None:
    assert of(images()) == of(images())
    assert of(images()).startswith("40+4 images of 4x4x1 in 2 classes, sha256 ")


@pytest.mark.parametrize("part", ["pixels", "labels", "names", "count"])
@pytest.mark.parametrize("whole", [True, False])
def test_every_part_of_an_array_counts(part: str, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHEAP", 2**28 if whole else 0)
    plain = images()
    pixels, labels = plain.images.copy(), plain.labels.copy()
    pixels[13 if whole else 0, 1, 2] += 1  # a sample has the first image
    labels[13] = 1 - labels[13]
    changed = {
        "pixels": dataclasses.replace(plain, images=pixels),
        "labels": dataclasses.replace(plain, labels=labels),
        "names": dataclasses.replace(plain, classes=("yes", "no")),
        "count": images(41),
    }
    assert of(changed[part]) != of(plain)


def test_photos_are_known_by_names_sizes_and_contents_and_not_by_their_times(tmp_path: Path) -> None:
    def told() -> str:
        found = find_images(tmp_path)
        return fingerprint(Data("p", photos(found.train, found.classes, 8), photos(found.validation, found.classes, 8)))

    write_photos(tmp_path, each=2, size=(8, 8))
    before = told()
    path = next((tmp_path / "train" / "n01").iterdir())
    os.utime(path, (1, 1))
    assert told() == before
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"!")  # as long as before
    assert told() != before
    path.write_bytes(content)
    assert told() == before
    path.rename(path.with_name(f"{path.name}.JPEG"))  # in the same place among the others
    assert told() != before


class Items(Dataset[tuple[torch.Tensor, int]]):
    classes = ("no", "yes")

    def __init__(self, shift: float = 0.0, rng: np.random.Generator | None = None) -> None:
        self.shift, self.rng = shift, rng

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        own = 0.0 if self.rng is None else self.rng.normal()
        return torch.rand(1, 4, 4) + self.shift + own, index % 2


def test_items_of_a_dataset_are_sampled_with_the_generators_that_training_seeds() -> None:
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    assert fingerprint(get_data((Items(), Items()))) == fingerprint(get_data((Items(), Items())))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert fingerprint(get_data((Items(), Items()))) != fingerprint(get_data((Items(1e-6), Items())))


def test_items_that_differ_at_every_reading_are_left_out() -> None:
    """Such a set could never be resumed otherwise."""
    first, again = (get_data((Items(rng=np.random.default_rng()), Items())) for _ in range(2))
    assert fingerprint(first) == fingerprint(again)


def test_all_labels_of_a_dataset_that_knows_them_count() -> None:
    pixels, labels = torch.zeros(40, 1, 4, 4), torch.arange(40) % 2
    other = labels.clone()
    other[17] = 1 - other[17]  # not among those that are sampled
    one, two = (get_data((TensorDataset(pixels, y), TensorDataset(pixels, y))) for y in (labels, other))
    assert fingerprint(one) != fingerprint(two)
