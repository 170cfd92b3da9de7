"""Crops and flips of a whole batch of uint8 images at once.

The paper's augmentation ("4 pixels are padded on each side, and a 32x32 crop is randomly sampled from the
padded image or its horizontal flip"), as operations on the whole batch: mirror, pad, crop.
Nothing is kept between batches, so the images may stay memory-mapped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepnet.arguments import CountFromZero, checked
from stepnet.randomness import Words

Pixels = NDArray[np.uint8]


class Views(NamedTuple):
    """The view of each image: the crop's corner in the padded image, and whether it is mirrored."""

    top: NDArray[np.intp]
    left: NDArray[np.intp]
    mirrored: NDArray[np.bool_]


@checked
@dataclass(frozen=True)
class Augmentation:
    """Pad with `pad` black pixels on each side and crop the old size; mirror with probability 1/2 if `flip`."""

    pad: CountFromZero = 0
    flip: bool = False

    def views(self, words: Words) -> Views:
        """Draw the view of each image from one random 64-bit word: its residues place the crop, its top bit mirrors."""
        places = np.uint64(2 * self.pad + 1)
        top, left = words % places, words // places % places
        mirrored = (words >> np.uint64(63)).astype(np.bool_) & self.flip
        return Views(top.astype(np.intp), left.astype(np.intp), mirrored)

    def __call__(self, images: Pixels, words: Words) -> Pixels:
        """Augment a batch [B, H, W, C]; `words` has one word for each image."""
        return take_views(images, self.views(words), self.pad)


def take_views(images: Pixels, views: Views, pad: int) -> Pixels:
    """Mirror, pad with zeros, and crop [H, W] at (top, left) of each image."""
    count, height, width, channels = images.shape
    padded = np.zeros((count, height + 2 * pad, width + 2 * pad, channels), np.uint8)
    inside = padded[:, pad : pad + height, pad : pad + width]
    inside[...] = images
    # One pixel is one item of `channels` bytes: a mirror then moves pixels, not bytes (twice as fast).
    pixel = np.dtype((np.void, channels))
    columns = padded.view(pixel)[..., 0][:, pad : pad + height, pad : pad + width]
    columns[views.mirrored] = columns[views.mirrored][:, :, ::-1]
    # All windows as one strided view with rows of W*C adjacent bytes; indexing it copies one window for each image.
    image, row, column, byte = padded.strides
    windows = np.lib.stride_tricks.as_strided(
        padded,
        (count, 2 * pad + 1, 2 * pad + 1, height, width * channels),
        (image, row, column, row, byte),
        writeable=False,
    )
    return windows[np.arange(count), views.top, views.left].reshape(images.shape)
