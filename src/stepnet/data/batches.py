"""The order of the images in an epoch, and their augmentation.

Both are functions of (seed, epoch, position in the epoch) and of nothing else: not of the batches drawn before, nor
of the number of processes. Batch `step` holds the positions [step B, (step+1) B), and each rank takes a
slice of it. One process and two therefore see the same data, and a run that resumes in the middle of an epoch starts
at its step directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from stepnet.arguments import Count, CountFromZero, Seed, checked
from stepnet.data.datasets import Batch, Data, Request, Source
from stepnet.data.normalise import Normalisation
from stepnet.errors import UserError
from stepnet.randomness import Stream, Words, random_words


@checked
@dataclass(frozen=True, eq=False)
class Batches:
    """The batches of a source. `seed=None` is for evaluation: in the source's order, without augmentation.

    `batch_size` is the global one, over all ranks. The last batch of an epoch may be short.
    """

    source: Source
    normalise: Normalisation
    batch_size: Count
    seed: Seed | None = None
    rank: CountFromZero = 0
    world_size: Count = 1
    most_steps: Count | None = None  # in an epoch; by default the whole source

    def __post_init__(self) -> None:
        if self.rank >= self.world_size:
            raise UserError(f"rank is {self.rank} of {self.world_size}: expected 0 to {self.world_size - 1}")

    def __len__(self) -> int:
        """The number of steps in an epoch."""
        whole = -(-len(self.source) // self.batch_size)
        return whole if self.most_steps is None else min(whole, self.most_steps)

    def size(self, step: int) -> int:
        """Return the number of images in batch `step` over all ranks."""
        return min(self.batch_size, len(self.source) - step * self.batch_size)

    def positions(self, step: int) -> slice:
        """Return this rank's slice of batch `step`, as positions in the epoch."""
        start, size = step * self.batch_size, self.size(step)
        return slice(start + size * self.rank // self.world_size, start + size * (self.rank + 1) // self.world_size)

    def places(self, step: int, count: int) -> range:
        """Return this rank's places in batch `step`, for the images that could be read."""
        first = self.positions(step).start - step * self.batch_size
        return range(first, first + count)

    def epoch(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Yield this rank's part of each batch of `epoch`, from step `start` on."""
        return self.source.read(self._requests(epoch, start), self.normalise)

    def first_not_finite(self, epoch: int, start: int, stop: int) -> int | None:
        """Return the index of the first image in these steps that holds NaN or infinity."""
        requests = list(islice(self._requests(epoch, start), stop - start))
        for request, (images, _) in zip(requests, self.source.read(requests, self.normalise), strict=True):
            bad = (~images.isfinite()).flatten(1).any(1)
            if bad.any():
                return int(request.indices[int(bad.int().argmax())])
        return None

    def _requests(self, epoch: int, start: int) -> Iterator[Request]:
        count = len(self.source)
        order: NDArray[np.intp] = np.arange(count)
        words: Words | None = None
        if self.seed is not None:
            order = np.argsort(random_words(count, self.seed, epoch, Stream.ORDER), kind="stable")
            words = random_words(count, self.seed, epoch, Stream.VIEWS)
        for step in range(start, len(self)):
            here = self.positions(step)
            yield Request(order[here], None if words is None else words[here])


@checked
def training_batches(
    data: Data, batch_size: int, *, seed: int, rank: int = 0, world_size: int = 1, most_steps: int | None = None
) -> Batches:
    """Return batches of the training set, augmented and in a new order each epoch, at most `most_steps` of them."""
    return Batches(data.train, data.normalise, batch_size, seed, rank, world_size, most_steps)


@checked
def evaluation_batches(data: Data, batch_size: int, *, rank: int = 0, world_size: int = 1) -> Batches:
    """Return batches of the test set: every image once, in order, without augmentation."""
    return Batches(data.test, data.normalise, batch_size, None, rank, world_size)
