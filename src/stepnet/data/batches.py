"""Which image stands where in an epoch, and how it is augmented.

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
    """The batches of one source. `seed=None` is for evaluation: the source's own order, nothing augmented.

    `batch_size` is the global one, over all ranks. The last batch of an epoch may be short.
    """

    source: Source
    normalise: Normalisation
    batch_size: Count
    seed: Seed | None = None
    rank: CountFromZero = 0
    world_size: Count = 1
    most_steps: Count | None = None  # of an epoch, which otherwise takes the whole source

    def __post_init__(self) -> None:
        if self.rank >= self.world_size:
            raise UserError(f"rank is {self.rank} of {self.world_size}: expected 0 to {self.world_size - 1}")

    def __len__(self) -> int:
        """The number of steps in an epoch."""
        whole = -(-len(self.source) // self.batch_size)
        return whole if self.most_steps is None else min(whole, self.most_steps)

    def size(self, step: int) -> int:
        """How many images batch `step` holds over all ranks."""
        return min(self.batch_size, len(self.source) - step * self.batch_size)

    def positions(self, step: int) -> slice:
        """This rank's slice of batch `step`, as positions in the epoch."""
        start, size = step * self.batch_size, self.size(step)
        return slice(
            start + size * self.rank // self.world_size,
            start + size * (self.rank + 1) // self.world_size,
        )

    def places(self, step: int, count: int) -> range:
        """This rank's places in batch `step`, as many as images of it could be read."""
        first = self.positions(step).start - step * self.batch_size
        return range(first, first + count)

    def epoch(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """This rank's part of each batch of `epoch`, from step `start` on."""
        return self.source.read(self._requests(epoch, start), self.normalise)

    def first_not_finite(self, epoch: int, start: int, stop: int) -> int | None:
        """Which image of these steps is the first to hold NaN or infinity, as an index of the source."""
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
    """The training set in a new order each epoch, augmented; of each order the first `most_steps` batches."""
    return Batches(data.train, data.normalise, batch_size, seed, rank, world_size, most_steps)


@checked
def evaluation_batches(data: Data, batch_size: int, *, rank: int = 0, world_size: int = 1) -> Batches:
    """The test set in its own order, every image once and as it is."""
    return Batches(data.test, data.normalise, batch_size, None, rank, world_size)
