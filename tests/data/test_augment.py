import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepnet.data.augment import Augmentation, Views, take_views
from stepnet.data.batches import random_words
from stepnet.errors import UserError


@settings(max_examples=50)
@given(
    count=st.integers(0, 6),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    channels=st.integers(1, 4),
    pad=st.integers(0, 4),
    flip=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_equals_torchvision_image_by_image(
    count: int, height: int, width: int, channels: int, pad: int, flip: bool, seed: int
) -> None:
    from torchvision.transforms.v2 import functional as F

    images = np.random.default_rng(seed).integers(0, 256, (count, height, width, channels), dtype=np.uint8)
    words = random_words(count, seed)
    augmentation = Augmentation(pad, flip)
    batch = augmentation(images, words)
    assert batch.shape == images.shape and batch.dtype == np.uint8
    top, left, mirrored = augmentation.views(words)
    for i in range(count):
        image = torch.from_numpy(images[i]).permute(2, 0, 1)
        image = F.horizontal_flip(image) if mirrored[i] else image
        image = F.crop(F.pad(image, [pad]), int(top[i]), int(left[i]), height, width)
        assert np.array_equal(batch[i], image.permute(1, 2, 0).numpy())


def test_every_view_occurs_and_equally_often() -> None:
    words = random_words(81 * 2 * 500, 0)
    top, left, mirrored = Augmentation(pad=4, flip=True).views(words)
    counts = np.bincount((top * 9 + left) * 2 + mirrored, minlength=162)
    assert len(counts) == 162
    chi_squared = float(((counts - 500) ** 2 / 500).sum())
    assert chi_squared < 161 + 5 * np.sqrt(2 * 161)


def test_no_flip_means_no_flip() -> None:
    assert not Augmentation(pad=1, flip=False).views(random_words(1000, 0)).mirrored.any()


def test_the_images_given_are_left_as_they_were() -> None:
    images = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    images.flags.writeable = False  # as a memory-mapped file is
    views = Views(np.array([0, 1]), np.array([2, 0]), np.array([True, True]))
    take_views(images, views, pad=1)
    assert np.array_equal(images.ravel(), np.arange(96))


def test_a_negative_pad_is_refused() -> None:
    with pytest.raises(UserError, match="pad = -1"):
        Augmentation(pad=-1)
