"""A torch Dataset, or any object with a length and (image, label) at each index, as a source of batches.

Its random transforms draw from Python's, numpy's and torch's generators. These are seeded before each item by the
item's random word, and restored after the batch: a run resumes to the bit, with any number of processes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stepnet.data.datasets import MOST_CLASSES, Batch, Data, Request, random_split
from stepnet.data.normalise import Normalisation, sample_of, statistics
from stepnet.errors import UserError

if TYPE_CHECKING:
    import torch

SPLIT = 0x51717  # key of the random split into training and validation


@runtime_checkable
class Indexable(Protocol):
    """An object with a length and (image, label) at each index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


def data_of_datasets(data: object, val_share: float | None, of_classes: bool = True) -> Data:
    """Return a `Data` of (train, test), or of one set and the share of it that is for validation.

    `of_classes`: whether items are images and targets the numbers of classes; else both are tensors of any shape.
    """
    if isinstance(data, tuple | list) and len(data) == 2 and all(_is_set(part) for part in data):
        if val_share is not None:
            raise UserError(f"val_share = {val_share}, but there is a test set: give only one")
        return _of_two(data[0], data[1], of_classes)
    if any(hasattr(part, "batch_sampler") for part in (data if isinstance(data, tuple | list) else [data])):
        raise UserError(
            "data is a DataLoader: expected its Dataset, as in data=(train.dataset, test.dataset), batch_size=64; "
            "batches, their order and their augmentation are the run's own, so that it resumes to the bit"
        )
    if not _is_set(data):
        raise UserError(
            f"data is {type(data).__name__}: expected a name, a folder, or torch Datasets (train, test) with a length "
            "and an item at each index; other data can neither be shuffled nor resumed to the bit"
        )
    if val_share is None:
        raise UserError("data is one Dataset: expected (train, test), or the share to test on, as in val_share=0.1")
    if not 0 < val_share < 1:
        raise UserError(f"val_share = {val_share}: expected a share between 0 and 1, such as 0.1")
    assert isinstance(data, Indexable)
    parts = random_split("val_share", len(data), val_share, SPLIT)
    names, count = _classes(data, of_classes)
    train, test = (DatasetImages(data, part.tolist(), names or _numbered(count)) for part in parts)
    return Data(type(data).__name__, train, test)


def _of_two(training: Indexable, tests: Indexable, of_classes: bool) -> Data:
    (first, count), (second, other) = (_classes(part, of_classes) for part in (training, tests))
    if not first and not second:  # classes without names: as many as in either
        count = other = max(count, other)
    train = DatasetImages(training, range(len(training)), first or _numbered(count))
    test = DatasetImages(tests, range(len(tests)), second or _numbered(other))
    return Data(type(training).__name__, train, test)


@dataclass(frozen=True, eq=False)
class DatasetImages:
    """The items of a data set at `places`."""

    dataset: Indexable
    places: Sequence[int]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        shape = tuple(self._first.shape)
        if self.classes and len(shape) != 3:
            raise UserError(f"{self._at(0)}: an image of shape {shape}: expected [channels, height, width]")

    def __len__(self) -> int:
        return len(self.places)

    @property
    def labels(self) -> NDArray[Any] | None:
        """The label of each item, if the data set knows them without reading its items."""
        known = _known_labels(self.dataset)
        if known is None or known.shape[:1] != (len(self.dataset),) or known.dtype.kind not in "iuf":
            return None
        return known[np.asarray(self.places, np.intp)]

    @cached_property
    def _first_item(self) -> tuple[torch.Tensor, torch.Tensor]:
        with _generators_kept():
            return self._item(0, 0)

    @property
    def _first(self) -> torch.Tensor:
        return self._first_item[0]

    @property
    def shape(self) -> tuple[int, ...]:
        if self._first.ndim != 3:
            return tuple(self._first.shape)
        channels, height, width = self._first.shape
        return height, width, channels

    @property
    def target_shape(self) -> tuple[int, ...]:
        """The shape of a target: () for a number."""
        return tuple(self._first_item[1].shape)

    @property
    def of_bytes(self) -> bool:
        import torch

        return self._first.dtype == torch.uint8 and self._first.ndim == 3

    def read(self, requests: Iterable[Request], normalise: Normalisation) -> Iterator[Batch]:
        """Yield the requested batches. Images of bytes are normalised; other items are passed on as they are."""
        import torch

        for indices, words in requests:
            seeds = indices.tolist() if words is None else words.tolist()
            with _generators_kept():
                items = [self._item(index, seed) for index, seed in zip(indices.tolist(), seeds, strict=True)]
            inputs, targets = (
                torch.stack(parts) if parts else first[None][:0]
                for parts, first in zip(zip(*items, strict=True) if items else ((), ()), self._first_item, strict=True)
            )
            if self.of_bytes:
                yield normalise(inputs.permute(0, 2, 3, 1).numpy()), targets
            elif inputs.ndim == 4:
                yield inputs.float().contiguous(memory_format=torch.channels_last), targets
            else:
                yield inputs.float() if inputs.is_floating_point() else inputs, targets

    def statistics(self) -> Normalisation:
        """Return mean and deviation of a sample of images of bytes; 0 and 1 for floats."""
        channels = self.shape[-1] if self.shape else 1
        if not self.of_bytes:
            return Normalisation((0.0,) * channels, (1.0,) * channels)
        with _generators_kept():
            pixels = [self._item(i, i)[0].permute(1, 2, 0).numpy() for i in sample_of(len(self)).tolist()]
        return statistics(np.stack(pixels))

    def _item(self, index: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Read an image [C, H, W] and its label, or any item and its target, after seeding the generators."""
        import torch

        torch.default_generator.manual_seed(seed)  # not those of GPUs, which are not restored
        np.random.seed(seed % 2**32)
        random.seed(seed)
        image, label = _pair(self.dataset, self.places[index], bool(self.classes))
        tensor = _tensor(image) if self.classes or not isinstance(image, np.ndarray) else torch.from_numpy(image)
        if tensor is None:
            raise UserError(
                f"{self._at(index)}: an image of type {type(image).__name__}: expected a tensor or PIL image"
            )
        target = torch.as_tensor(label)
        known, known_target = self.__dict__.get("_first_item", (tensor, target))
        if target.shape != known_target.shape:
            shapes = f"a target of shape {tuple(target.shape)}, the first is {tuple(known_target.shape)}"
            raise UserError(f"{self._at(index)}: {shapes}: expected equal ones")
        if (tensor.shape, tensor.dtype) != (known.shape, known.dtype):
            raise UserError(
                f"{self._at(index)}: an image of shape {tuple(tensor.shape)} and {tensor.dtype}, the first is "
                f"{tuple(known.shape)} and {known.dtype}: expected equal ones, by a resize in the data set's transform"
            )
        if self.classes and not 0 <= int(target) < len(self.classes):
            most = len(self.classes) - 1
            raise UserError(f"{self._at(index)}: label {label}: expected a whole number from 0 to {most}")
        return tensor, target.float() if target.is_floating_point() else target

    def _at(self, index: int) -> str:
        return f"{type(self.dataset).__name__}[{self.places[index]}]"


def _is_set(value: object) -> bool:
    try:
        return isinstance(value, Indexable) and not isinstance(value, str | bytes | dict) and len(value) >= 0
    except TypeError:  # an IterableDataset has the methods, but they raise
        return False


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def _classes(dataset: Indexable, of_classes: bool) -> tuple[tuple[str, ...], int]:
    """Return the names of the classes and their number: without names, the largest label plus one."""
    if not len(dataset):
        raise UserError(f"{type(dataset).__name__} holds no items: expected at least one")
    if not of_classes:
        return (), 0
    names = getattr(dataset, "classes", None)
    if isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
        return tuple(names), len(names)
    values = _known_labels(dataset)
    if values is None:
        with _generators_kept():
            values = np.asarray([_pair(dataset, place, True)[1] for place in range(len(dataset))])
    if values.ndim != 1 or values.dtype.kind not in "iu" or not len(values):
        raise UserError(
            f"{type(dataset).__name__}: labels of type {values.dtype} and shape {values.shape}: "
            "expected one whole number for each item"
        )
    if values.max() >= MOST_CLASSES:
        where = f"{type(dataset).__name__}[{values.argmax()}]: label {values.max()}"
        raise UserError(f"{where}: expected the number of a class, from 0 to {MOST_CLASSES - 1} at most")
    return (), int(values.max()) + 1


def _known_labels(dataset: Indexable) -> NDArray[Any] | None:
    """Return `targets` (torchvision), `labels`, or the second tensor of a TensorDataset."""
    labels = getattr(dataset, "targets", getattr(dataset, "labels", None))
    tensors = getattr(dataset, "tensors", None)
    if isinstance(tensors, tuple) and len(tensors) == 2:
        labels = tensors[1]
    return None if labels is None else np.asarray(labels)


def _pair(dataset: Indexable, place: int, of_classes: bool) -> tuple[object, object]:
    """Read the image and its label at an index, or an item and its target: a number, an array or a tensor."""
    import torch

    item = dataset[place]
    image, target = item if isinstance(item, tuple | list) and len(item) == 2 else (item, None)
    if of_classes:
        if isinstance(target, torch.Tensor | np.ndarray) and target.ndim == 0:
            target = target.item()
        if isinstance(target, SupportsIndex) and not isinstance(target, bool | torch.Tensor):
            return image, int(target)
    elif isinstance(target, torch.Tensor | np.ndarray | int | float | np.number):
        return image, target
    kind, expected = ("label", "(image, whole number)") if of_classes else ("target", "(item, number or tensor)")
    what = f"{type(item).__name__} of {kind} {target!r:.40}"
    raise UserError(f"{type(dataset).__name__}[{place}]: {what}: expected {expected}")


def _tensor(image: object) -> torch.Tensor | None:
    """Convert an array [H, W, C] or a PIL image to a tensor [C, H, W]; return a tensor unchanged."""
    import torch

    if isinstance(image, torch.Tensor):
        return image
    if isinstance(image, Image.Image):
        image = np.array(image if image.mode in ("RGB", "L") else image.convert("RGB"))
    if isinstance(image, np.ndarray) and image.dtype.kind in "uf" and image.ndim in (2, 3):
        layers = image[..., np.newaxis] if image.ndim == 2 else image
        return torch.from_numpy(np.ascontiguousarray(layers.transpose(2, 0, 1)))
    return None


@contextmanager
def _generators_kept() -> Iterator[None]:
    """Restore Python's, numpy's and torch's generators at the end."""
    import torch

    python, array = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
