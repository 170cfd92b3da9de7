"""Normalise uint8 images to float tensors."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stepnet.data.augment import Pixels
from stepnet.errors import UserError
from stepnet.files import atomic_file, read_file

if TYPE_CHECKING:
    import torch

BLOCK = 2**17  # numbers
SAMPLE = 2000  # images for computing mean and deviation, where each has to be decoded
LARGEST_KEPT = 10_000  # bytes


@dataclass(frozen=True)
class Normalisation:
    """x -> (x/255 - mean) / std in each channel, with the mean and the standard deviation of the training set."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Pixels) -> torch.Tensor:
        """Convert bytes [B, H, W, C] to floats [B, C, H, W] in channels-last layout."""
        import torch  # not above: `stepnet data list` need not wait for it

        count, height, width, channels = images.shape
        mean, std = np.asarray(self.mean), np.asarray(self.std)
        # One row is one whole image: over a last axis of three channels nothing would vectorise. In numpy, on one
        # thread: torch's threads would wait for each other when other processes keep the cores busy.
        scale = np.tile(1 / (255 * std), height * width).astype(np.float32)
        shift = np.tile(-mean / std, height * width).astype(np.float32)
        bytes_in_rows = images.reshape(count, height * width * channels)
        rows = np.empty(bytes_in_rows.shape, np.float32)
        some = max(1, BLOCK // max(1, len(scale)))
        for start in range(0, count, some):  # both operations on a block while it is in the cache
            part = rows[start : start + some]
            np.multiply(bytes_in_rows[start : start + some], scale, out=part)
            part += shift
        return torch.from_numpy(rows).view(count, height, width, channels).permute(0, 3, 1, 2)


def statistics(images: Pixels) -> Normalisation:
    """Return the mean and the standard deviation of each channel over all pixels of all images, divided by 255.

    The deviation is the population's (divided by the number of pixels), not the mean over images of each image's
    own, which is smaller and stands in many programs. Both come from exact integer sums. A channel that never
    varies keeps the deviation 1, so that it maps to zero.
    """
    channels = images.shape[-1]
    counts = np.zeros((channels, 256), np.int64)
    for start in range(0, len(images), 1000):  # in parts: counting widens the bytes to eight times their size
        part = images[start : start + 1000]
        for channel in range(channels):
            counts[channel] += np.bincount(part[..., channel].ravel(), minlength=256)
    mean, std = zip(*map(_moments, counts), strict=True)
    return Normalisation(mean, std)


def sample_of(count: int) -> NDArray[np.intp]:
    """Return `SAMPLE` evenly spread indices below `count`, or all of them where there are fewer."""
    return np.linspace(0, count - 1, min(count, SAMPLE)).round().astype(np.intp)


def kept_statistics(path: Path, take: Callable[[], Normalisation]) -> Normalisation:
    """Return the statistics stored at `path`; compute and store them there the first time."""
    with suppress(UserError, ValueError, KeyError, TypeError):
        values = json.loads(read_file(path, LARGEST_KEPT))
        return Normalisation(tuple(map(float, values["mean"])), tuple(map(float, values["std"])))
    computed = take()
    with suppress(UserError), atomic_file(path) as partial:  # where nothing can be written they are computed again
        partial.write_text(json.dumps(asdict(computed)))
    return computed


def _moments(counts: NDArray[np.int64]) -> tuple[float, float]:
    """Return mean and deviation of bytes whose value v occurs counts[v] times, by Python integers: int64 overflows."""
    occurs = list(enumerate(counts.tolist()))
    pixels, first, second = (sum(count * value**power for value, count in occurs) for power in range(3))
    variance = (pixels * second - first**2) / pixels**2
    return first / pixels / 255, math.sqrt(variance) / 255 or 1.0
