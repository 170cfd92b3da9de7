"""Random words that are a function of a key, for all rooms: resumed and distributed runs draw the same ones."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]


class Stream(IntEnum):
    """What the words are for: the last entry of a key, so that no two uses draw the same words."""

    ORDER = 0  # of the images in an epoch
    VIEWS = 1  # their augmentation
    GATES = 2  # of stochastic depth
    TOKENS = 4  # of text that is generated
    NOISE = 3  # torch's own generator, seeded again before each training step


def random_words(count: int, *key: int) -> Words:
    """`count` random 64-bit words, a function of `key`.

    Raw words of a counter-based generator, not numpy's distributions: numpy promises that the former never change.
    """
    return np.random.Philox(np.random.SeedSequence(key)).random_raw(count)


def uniform(words: Words) -> NDArray[np.float64]:
    """The words as numbers in [0, 1): their first 53 bits, exact in float64."""
    return np.ldexp((words >> np.uint64(11)).astype(np.float64), -53)


def uniforms_by_place(count: int, places: range, *key: int) -> NDArray[np.float64]:
    """`count` uniform numbers for each of some places in the global batch, which are the same in every slice of it."""
    words = random_words(places.stop * count, *key).reshape(-1, count)
    return uniform(words[places.start :])
