"""CIFAR-10 and CIFAR-100, from any layout that people have on disk.

Whatever the layout, the images are copied once into `ROOT/NAME/images.npy`, one uint8 array [60000, 32, 32, 3] with
the training images first, and from then on memory-mapped: all processes of a machine share it. Looked for in `ROOT`,
in this order:

    cifar-10-batches-bin/     cifar-100-binary/      the official binary batches
    cifar-10-batches-py/      cifar-100-python/      the official pickles, opened by `pickles.load_arrays`
    cifar10.npz               cifar100.npz           x_train, y_train, x_test, y_test; no objects
"""

from __future__ import annotations

import errno
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepnet.data.augment import Augmentation, Pixels
from stepnet.data.datasets import Data, ImageSet, register_data
from stepnet.data.pickles import load_arrays
from stepnet.errors import UserError
from stepnet.files import whole_folder

SIDE, CHANNELS = 32, 3
PIXELS = SIDE * SIDE * CHANNELS

# "4 pixels are padded on each side, and a 32x32 crop is randomly sampled from the padded image or its horizontal flip"
AUGMENTATION = Augmentation(pad=4, flip=True)

Labels = NDArray[np.int64]
Split = tuple[Pixels, Labels]


@dataclass(frozen=True)
class Cifar:
    """One of the two data sets: how its official files are called and what they hold."""

    name: str
    classes: tuple[str, ...]
    binary_folder: str
    pickle_folder: str
    train_files: tuple[str, ...]  # without the `.bin` of the binary layout
    test_file: str
    label_key: bytes
    label_bytes: int  # before each image; the last is the label (CIFAR-100 has the superclass before it)
    train_images: int = 50_000
    test_images: int = 10_000

    @property
    def npz(self) -> str:
        return f"{self.name}.npz"


CIFAR10 = Cifar(
    name="cifar10",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    binary_folder="cifar-10-batches-bin",
    pickle_folder="cifar-10-batches-py",
    train_files=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test_file="test_batch",
    label_key=b"labels",
    label_bytes=1,
)

FINE_CLASSES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

CIFAR100 = Cifar(
    name="cifar100",
    classes=tuple(FINE_CLASSES.split()),
    binary_folder="cifar-100-binary",
    pickle_folder="cifar-100-python",
    train_files=("train",),
    test_file="test",
    label_key=b"fine_labels",
    label_bytes=2,
)


@register_data("cifar10")
def cifar10(root: Path) -> Data:
    """60,000 colour images of 32x32 pixels in 10 classes."""
    return load(CIFAR10, root)


@register_data("cifar100")
def cifar100(root: Path) -> Data:
    """60,000 colour images of 32x32 pixels in 100 classes."""
    return load(CIFAR100, root)


def load(kind: Cifar, root: Path) -> Data:
    """The data set, memory-mapped; made from the first layout in `root` when it is asked for the first time."""
    folder = root / kind.name
    if not folder.is_dir():
        try:
            prepare(kind, root)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EROFS):
                raise UserError(f"cannot write {folder}: {error.strerror}") from None
            images, labels = read(kind, root)  # a read-only root: kept in memory instead
            return _data(kind, images, labels)
    return _data(kind, *_map_arrays(kind, folder))


def prepare(kind: Cifar, root: Path) -> None:
    """Copy the images from their layout in `root` into the arrays that `load` maps."""
    images, labels = read(kind, root)
    with whole_folder(root / kind.name) as partial:
        np.save(partial / "images.npy", images)
        np.save(partial / "labels.npy", labels)


def is_copy(kind: Cifar, root: Path) -> bool:
    """Whether the arrays in `root` hold what its first layout holds; they may be older than it."""
    mapped_images, mapped_labels = _map_arrays(kind, root / kind.name)
    images, labels = read(kind, root)
    return np.array_equal(mapped_images, images) and np.array_equal(mapped_labels, labels)


def read(kind: Cifar, root: Path) -> Split:
    """The images and labels of the first layout in `root`, training images first."""
    layout = next((root / name for name in _readers(kind) if (root / name).exists()), None)
    if layout is None:
        wanted = ", ".join(_readers(kind))
        raise UserError(
            f"{kind.name} is not in {root}: run `stepnet data fetch {kind.name}`, or put one of {wanted} there"
        )
    splits = _readers(kind)[layout.name](kind, layout)
    for (images, labels), expected in zip(splits, (kind.train_images, kind.test_images), strict=True):
        if not len(images) == len(labels) == expected:
            raise UserError(
                f"{layout} holds {len(images)} images and {len(labels)} labels where {expected} are expected: "
                f"delete it, and fetch {kind.name} again"
            )
        if not 0 <= labels.min() <= labels.max() < len(kind.classes):
            raise UserError(
                f"{layout} holds labels from {labels.min()} to {labels.max()}: expected 0 to {len(kind.classes) - 1}"
            )
    return _concatenate(splits)


def encode_records(images: Pixels, labels: Labels) -> bytes:
    """A batch in CIFAR-10's binary layout: for each image its label, then all red, all green, all blue bytes."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), PIXELS)
    return np.concatenate([labels[:, np.newaxis].astype(np.uint8), planes], axis=1).tobytes()


def _map_arrays(kind: Cifar, folder: Path) -> Split:
    try:
        images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
        labels = np.load(folder / "labels.npy", allow_pickle=False)
        if images.shape != (kind.train_images + kind.test_images, SIDE, SIDE, CHANNELS):
            raise ValueError(f"images of shape {images.shape}")
        return np.asarray(images), labels
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is damaged ({error}): delete it, and it is made again") from None


def _data(kind: Cifar, images: Pixels, labels: Labels) -> Data:
    train, test = slice(kind.train_images), slice(kind.train_images, None)
    return Data.of(
        kind.name,
        train=ImageSet(images[train], labels[train], kind.classes, AUGMENTATION),
        test=ImageSet(images[test], labels[test], kind.classes),
    )


def _readers(kind: Cifar) -> dict[str, Callable[[Cifar, Path], tuple[Split, Split]]]:
    """How each layout is read, by the name of its folder or file; the first that exists is taken."""
    return {kind.binary_folder: _read_binary, kind.pickle_folder: _read_pickles, kind.npz: _read_npz}


def _read_binary(kind: Cifar, folder: Path) -> tuple[Split, Split]:
    def records(name: str) -> Split:
        path = folder / f"{name}.bin"
        content = np.frombuffer(_bytes(path), np.uint8)
        width = kind.label_bytes + PIXELS
        if len(content) % width:
            raise UserError(f"{path} holds {len(content)} bytes, no multiple of {width}: it is truncated")
        rows = content.reshape(-1, width)
        return _from_planes(rows[:, kind.label_bytes :]), rows[:, kind.label_bytes - 1].astype(np.int64)

    return _join(kind, records)


def _read_pickles(kind: Cifar, folder: Path) -> tuple[Split, Split]:
    def batch(name: str) -> Split:
        path = folder / name
        if not path.is_file():
            raise UserError(
                f"{path} is missing: unpack the whole archive, or delete {folder} and fetch {kind.name} again"
            )
        content = load_arrays(path)
        try:
            images, labels = content[b"data"], np.asarray(content[kind.label_key], np.int64)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} is no batch of {kind.name} ({type(error).__name__}: {error})") from None
        if not isinstance(images, np.ndarray) or images.shape != (len(labels), PIXELS) or images.dtype != np.uint8:
            raise UserError(f"{path} is damaged: expected {len(labels)} rows of {PIXELS} bytes")
        return _from_planes(images), labels

    return _join(kind, batch)


def _read_npz(kind: Cifar, path: Path) -> tuple[Split, Split]:
    # A small file can unpack to any size: the sizes are read first, and int64 labels are the most that is expected.
    limit = (kind.train_images + kind.test_images) * max(PIXELS, 8) + 2**16
    try:
        with zipfile.ZipFile(path) as members:
            for member in members.infolist():
                if member.file_size > limit:
                    raise UserError(f"{member.filename} unpacks to {member.file_size} bytes")
        with np.load(path, allow_pickle=False) as arrays:
            train, test = (
                (_from_any(arrays[f"x_{split}"]), arrays[f"y_{split}"].astype(np.int64).reshape(-1))
                for split in ("train", "test")
            )
            return train, test
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} is no {kind.name}: {error}; expected uint8 arrays x_train, x_test and labels y_train, y_test"
        ) from None


def _join(kind: Cifar, one: Callable[[str], Split]) -> tuple[Split, Split]:
    return _concatenate([one(name) for name in kind.train_files]), one(kind.test_file)


def _concatenate(parts: Sequence[Split]) -> Split:
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def _from_planes(rows: Pixels) -> Pixels:
    """Rows of all red, all green, all blue bytes to images [N, 32, 32, 3]."""
    return np.ascontiguousarray(rows.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1))


def _from_any(images: NDArray[np.generic]) -> Pixels:
    """Images as [N, 32, 32, 3], [N, 3, 32, 32] or rows [N, 3072] of planes."""
    if images.dtype != np.uint8:
        raise ValueError(f"images are {images.dtype}")
    if images.shape[1:] == (SIDE, SIDE, CHANNELS):
        return np.asarray(images, np.uint8)
    if images.shape[1:] in ((CHANNELS, SIDE, SIDE), (PIXELS,)):
        return _from_planes(np.asarray(images, np.uint8))
    raise ValueError(f"images have the shape {images.shape}")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
