"""Data sets: sources of images, training and test sets, and the registry."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stepnet.arguments import checked
from stepnet.data.augment import Augmentation, Pixels
from stepnet.data.normalise import Normalisation, kept_statistics, statistics
from stepnet.errors import UserError
from stepnet.randomness import Words, random_words, uniform
from stepnet.registry import Registry

if TYPE_CHECKING:
    import torch

MOST_CLASSES = 100_000
HELD_OUT = 0x40DD  # key of the random choice of held-out items
Batch: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"


class Request(NamedTuple):
    """A batch to read: indices of images, and a random word for each (None: the evaluation view)."""

    indices: NDArray[np.intp]
    words: Words | None


@runtime_checkable
class Source(Protocol):
    """A source of images: an array in memory or on disk (`ImageSet`), files (`photos.Photos`), a torch Dataset."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """[H, W, C] of images; the shape of other items."""

    def __len__(self) -> int: ...

    def read(self, requests: Iterable[Request], normalise: Normalisation) -> Iterator[Batch]:
        """Yield the requested batches in order: images [B, C, H, W] in channels-last layout, and labels; or other items
        [B, …] and their targets."""

    def statistics(self) -> Normalisation:
        """Return the mean and the standard deviation of the images."""


@runtime_checkable
class HoldsOut(Protocol):
    """A source whose items overlap, so that holding out by index would leave parts of them in the training set."""

    def hold_out(self, share: float) -> tuple[Source, Source]:
        """Return the rest for training, and the held-out part."""


@checked
@dataclass(frozen=True, eq=False)
class ImageSet:
    """N images as one uint8 array [N, H, W, C], perhaps memory-mapped, and their labels, int64 [N]."""

    images: Pixels
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    augmentation: Augmentation = field(default_factory=Augmentation)
    paths: tuple[Path, ...] = ()  # of images from files

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != np.uint8:
            raise UserError(f"images are {self.images.dtype} of shape {self.images.shape}: expected uint8 [N, H, W, C]")
        if self.labels.shape != self.images.shape[:1] or self.labels.dtype != np.int64:
            raise UserError(
                f"labels are {self.labels.dtype} of shape {self.labels.shape}: "
                f"expected int64 [{len(self.images)}], one for each image"
            )
        if not len(self.images):
            raise UserError("an image set without images: expected at least one")
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= len(self.classes):
            raise UserError(f"labels run from {low} to {high}: expected 0 to {len(self.classes) - 1}")

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, int, int]:
        _, height, width, channels = self.images.shape
        return height, width, channels

    def read(self, requests: Iterable[Request], normalise: Normalisation) -> Iterator[Batch]:
        """Yield the requested batches, augmented where the request has words."""
        import torch

        for indices, words in requests:
            images = self.images[indices]
            if words is not None:
                images = self.augmentation(images, words)
            yield normalise(images), torch.from_numpy(self.labels[indices])

    def statistics(self) -> Normalisation:
        """Return the mean and the standard deviation over all pixels."""
        return statistics(self.images)

    def shrunk(self, size: int) -> ImageSet:
        """Return the images with `size` pixels a side, each the mean of a square of pixels; padding shrinks alike."""
        count, height, width, channels = self.images.shape
        factor, rest = divmod(height, size)
        if rest or height != width:
            raise UserError(f"image_size = {size} for images of {height}x{width}: expected a divisor of their size")
        squares = self.images.reshape(count, size, factor, size, factor, channels)
        sums = squares.sum(axis=(2, 4), dtype=np.uint32)
        means = (sums + factor**2 // 2) // factor**2  # to the nearest whole number
        augmentation = replace(self.augmentation, pad=round(self.augmentation.pad / factor))
        return replace(self, images=means.astype(np.uint8), augmentation=augmentation)


@dataclass(frozen=True, eq=False)
class Subset:
    """The items of a source at `places`."""

    source: Source
    places: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.places)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.source.classes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """The labels, if the source knows them without reading its items."""
        known: NDArray[np.int64] | None = getattr(self.source, "labels", None)
        return None if known is None else known[self.places]

    def read(self, requests: Iterable[Request], normalise: Normalisation) -> Iterator[Batch]:
        """Yield the requested batches."""
        return self.source.read((Request(self.places[indices], words) for indices, words in requests), normalise)

    def statistics(self) -> Normalisation:
        """Return the statistics of the whole source."""
        return self.source.statistics()


@checked
@dataclass(frozen=True, eq=False)
class Data:
    """A training set and a test set of the same classes, normalised by published or by computed constants.

    With a `validation` set, the best epoch and early stopping depend on it, and not on the test set.
    """

    name: str
    train: Source
    test: Source
    constants: Normalisation | None = None
    kept: Path | None = None  # a file that caches the computed statistics
    task: str = "classification"  # a name of `stepnet.training.register_task`
    validation: Source | None = None

    def __post_init__(self) -> None:
        if self.train.shape != self.test.shape:
            raise UserError(f"{self.name}: training images are {self.train.shape}, test images {self.test.shape}")
        if self.train.classes != self.test.classes:
            pairs = zip_longest(self.train.classes, self.test.classes)
            place, (one, other) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
            raise UserError(f"{self.name}: class {place} is {one!r} in the training set, {other!r} in the test set")

    def hold_out(self, share: float) -> Data:
        """Use a share of the training set as validation set; the choice depends only on positions.

        A source whose items overlap, such as the sequences of a text, makes the choice itself.
        """
        if self.validation is not None:
            raise UserError(f"holdout = {share}: {self.name} has a validation set of its own; leave it out")
        train: Source
        validation: Source
        if isinstance(self.train, HoldsOut):
            train, validation = self.train.hold_out(share)
        else:
            places = random_split("holdout", len(self.train), share, HELD_OUT)
            train, validation = (Subset(self.train, chosen) for chosen in places)
        return replace(self, train=train, validation=validation)

    def shrunk(self, size: int) -> Data:
        """Return the data with images of `size` pixels a side; their statistics are computed anew."""
        if size == self.image_size:
            return self
        if not (isinstance(self.train, ImageSet) and isinstance(self.test, ImageSet)):
            raise UserError(f"image_size = {size}: data {self.name!r} has a fixed image size; leave it out")
        return Data(self.name, train=self.train.shrunk(size), test=self.test.shrunk(size))

    @cached_property
    def normalise(self) -> Normalisation:
        """The normalisation of images, from the statistics of the training set."""
        if self.constants is not None:
            return self.constants
        return self.train.statistics() if self.kept is None else kept_statistics(self.kept, self.train.statistics)

    @property
    def num_classes(self) -> int:
        return len(self.train.classes)

    @property
    def num_outputs(self) -> int:
        """The number of outputs of a network: classes, or numbers of a target."""
        return self.num_classes or int(np.prod(getattr(self.train, "target_shape", ())))

    @property
    def in_channels(self) -> int:
        return self._images[2]

    @property
    def image_size(self) -> int:
        """The height of the images, which is also the width of all registered ones."""
        return self._images[0]

    @property
    def _images(self) -> tuple[int, ...]:
        if len(self.train.shape) != 3:
            raise UserError(
                f"{self.name}: items of shape {self.train.shape}: expected images, for a network of this name"
            )
        return self.train.shape


def random_split(what: str, count: int, share: float, key: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Choose a share of `count` items, a function of their positions; return the places of the others, and of these."""
    held = uniform(random_words(count, key)) < share
    if held.all() or not held.any():
        raise UserError(f"{what} = {share} of {count} items leaves a set empty: use another share")
    return np.flatnonzero(~held), np.flatnonzero(held)


Loader = Callable[[Path], Data]
DATA_SETS: Registry[Loader] = Registry("data")


@checked
def register_data(name: str) -> Callable[[Loader], Loader]:
    """Register `loader(root) -> Data` under `name`, for `get_data(name)` and `--data name`."""
    return partial(DATA_SETS.add, name)


def list_data() -> list[str]:
    """Return the names of the registered data sets."""
    return sorted(DATA_SETS)


@checked
def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of all data sets: `root`, else $STEPNET_DATA, else ~/.cache/stepnet."""
    return Path(root or os.environ.get("STEPNET_DATA") or "~/.cache/stepnet").expanduser().absolute()
