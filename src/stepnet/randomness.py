"""Random words as a function of a key, so that resumed and distributed runs draw the same."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]


class Stream(IntEnum):
    """The purpose of the words: the last entry of a key, so that no two purposes draw the same words."""

    ORDER = 0  # the order of the images in an epoch
    VIEWS = 1  # augmentation
    GATES = 2  # stochastic depth
    TOKENS = 4  # generated text
    NOISE = 3  # torch's generator, seeded before each training step


def random_words(count: int, *key: int) -> Words:
    """Return `count` random 64-bit words, a function of `key`.

    The words are those of a counter-based generator, which numpy guarantees not to change, unlike its distributions.
    """
    return np.random.Philox(np.random.SeedSequence(key)).random_raw(count)


def uniform(words: Words) -> NDArray[np.float64]:
    """Convert words to numbers in [0, 1): their first 53 bits, exact in float64."""
    return np.ldexp((words >> np.uint64(11)).astype(np.float64), -53)


def uniforms_by_place(count: int, places: range, *key: int) -> NDArray[np.float64]:
    """Return `count` uniform numbers for each place in the global batch, independent of how it is sliced."""
    words = random_words(places.stop * count, *key).reshape(-1, count)
    return uniform(words[places.start :])
