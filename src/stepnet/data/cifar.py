"""CIFAR-10 and CIFAR-100, from any of their layouts on disk.

Whatever the layout, the images are copied once into `ROOT/NAME/images.npy`, one uint8 array [60000, 32, 32, 3] with
the training images first, and from then on memory-mapped: all processes of a machine share it. Looked for in `ROOT`,
in this order:

    cifar-10-batches-bin/     cifar-100-binary/      the official binary batches
    cifar-10-batches-py/      cifar-100-python/      the official pickles, checked by their md5
    cifar10.npz               cifar100.npz           x_train, y_train, x_test, y_test; no objects
"""

from __future__ import annotations

import errno
import hashlib
import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepnet.data.arrays import map_array, read_arrays
from stepnet.data.augment import Augmentation, Pixels
from stepnet.data.datasets import Data, ImageSet, register_data
from stepnet.errors import UserError
from stepnet.files import atomic_folder, exclusive_lock, printable, read_file, reason

SIDE, CHANNELS = 32, 3
PIXELS = SIDE * SIDE * CHANNELS

# "4 pixels are padded on each side, and a 32x32 crop is randomly sampled from the padded image or its horizontal flip"
AUGMENTATION = Augmentation(pad=4, flip=True)

Labels = NDArray[np.int64]
Labelled = tuple[Pixels, Labels]
Arrays = Sequence[NDArray[Any]]  # images and labels as a file holds them
Files = Sequence[Arrays]


@dataclass(frozen=True)
class Cifar:
    """One of the two data sets: the names and contents of its official files."""

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


# The md5 of the official pickles, as in torchvision: no other pickle is opened.
PUBLISHED_PICKLES = {
    "c99cafc152244af753f735de768cd75f",
    "d4bba439e000b95fd0a9bffe97cbabec",
    "54ebc095f3ab1f0389bbae665268c751",
    "634d18415352ddfa80567beed471001a",
    "482c414d41f54cd18b22e5b47cb7c3cb",
    "40351d587109b95175f43aff81a1287e",
    "16019d7e3df5f24257cddd939b257f8d",
    "f0ef6b0ae62326f3e7ffdfab6717acfc",
}
LARGEST_PICKLE = 2**28  # bytes; CIFAR-100's training file has 155 million


def load(kind: Cifar, root: Path) -> Data:
    """Memory-map the data set; the first time, copy it from the first layout in `root`."""
    try:
        prepare(kind, root)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EROFS):
            raise UserError(f"cannot write {root / kind.name}: {reason(error)}") from None
        return _data(kind, *read(kind, root))  # a read-only root: kept in memory instead
    return _data(kind, *_map_arrays(kind, root / kind.name))


for _kind in (CIFAR10, CIFAR100):
    register_data(_kind.name)(partial(load, _kind))


def prepare(kind: Cifar, root: Path) -> bool:
    """Copy the images from their layout in `root` into the arrays that `load` maps; return False if they exist."""
    folder = root / kind.name
    if folder.is_dir():
        return False
    layout_of(kind, root)  # raises before anything is written if there is none
    with exclusive_lock(folder):
        if folder.is_dir():  # another process has made it
            return False
        images, labels = read(kind, root)
        with atomic_folder(folder) as partial:
            np.save(partial / "images.npy", images)
            np.save(partial / "labels.npy", labels)
    return True


def is_copy(kind: Cifar, root: Path) -> bool:
    """Whether the cached arrays in `root` equal its first layout, which may have been replaced since."""
    mapped_images, mapped_labels = _map_arrays(kind, root / kind.name)
    images, labels = read(kind, root)
    return np.array_equal(mapped_images, images) and np.array_equal(mapped_labels, labels)


def layout_of(kind: Cifar, root: Path) -> Path:
    """Return the first layout in `root`."""
    for name in _readers(kind):
        if (root / name).exists():
            return root / name
    raise UserError(
        f"{kind.name} is not in {root}: run `stepnet data fetch {kind.name}`, "
        f"or put one of {', '.join(_readers(kind))} there"
    )


def read(kind: Cifar, root: Path) -> Labelled:
    """Read the images and labels of the first layout in `root`, training images first."""
    layout = layout_of(kind, root)
    parts: list[Labelled] = []
    files_of_parts = _readers(kind)[layout.name](kind, layout)
    for files, expected in zip(files_of_parts, (kind.train_images, kind.test_images), strict=True):
        images = np.concatenate([_pixels(held, layout) for held, _ in files])
        labels = np.concatenate([whole_numbers(held, layout) for _, held in files])
        if not len(images) == len(labels) == expected:
            raise UserError(
                f"{layout} holds {len(images)} images and {len(labels)} labels where {expected} are expected: "
                f"delete it, and fetch {kind.name} again"
            )
        if not 0 <= labels.min() <= labels.max() < len(kind.classes):
            raise UserError(
                f"{layout} holds labels from {labels.min()} to {labels.max()}: expected 0 to {len(kind.classes) - 1}"
            )
        parts.append((images, labels))
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def encode_records(images: Pixels, labels: Labels) -> bytes:
    """Encode a batch in CIFAR-10's binary layout: for each image its label, then all red, green and blue bytes."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), PIXELS)
    return np.concatenate([labels[:, np.newaxis].astype(np.uint8), planes], axis=1).tobytes()


def _map_arrays(kind: Cifar, folder: Path) -> Labelled:
    count = kind.train_images + kind.test_images
    try:
        images = map_array(folder / "images.npy", np.dtype(np.uint8), (count, SIDE, SIDE, CHANNELS))
        labels = map_array(folder / "labels.npy", np.dtype(np.int64), (count,))
    except UserError as error:
        raise UserError(f"{error}: delete {folder}, and it is made again") from None
    return images, labels


def _data(kind: Cifar, images: Pixels, labels: Labels) -> Data:
    train, test = slice(kind.train_images), slice(kind.train_images, None)
    return Data(
        kind.name,
        train=ImageSet(images[train], labels[train], kind.classes, AUGMENTATION),
        test=ImageSet(images[test], labels[test], kind.classes),
    )


def _readers(kind: Cifar) -> dict[str, Callable[[Cifar, Path], tuple[Files, Files]]]:
    """Return the reader of each layout by the name of its folder or file, in order of preference."""
    return {kind.binary_folder: _read_binary, kind.pickle_folder: _read_pickles, kind.npz: _read_npz}


def _read_binary(kind: Cifar, folder: Path) -> tuple[Files, Files]:
    width = kind.label_bytes + PIXELS

    def records(name: str) -> Arrays:
        path = folder / f"{name}.bin"
        content = np.frombuffer(read_file(path, kind.train_images * width), np.uint8)
        if len(content) % width:
            raise UserError(f"{path} holds {len(content)} bytes, no multiple of {width}: it is truncated")
        rows = content.reshape(-1, width)
        return rows[:, kind.label_bytes :], rows[:, kind.label_bytes - 1]

    return [records(name) for name in kind.train_files], [records(kind.test_file)]


def _read_pickles(kind: Cifar, folder: Path) -> tuple[Files, Files]:
    def arrays(name: str) -> Arrays:
        path = folder / name
        content = read_file(path, LARGEST_PICKLE)
        if hashlib.md5(content, usedforsecurity=False).hexdigest() not in PUBLISHED_PICKLES:
            raise UserError(
                f"{printable(path)} is not the published file, and a pickle may hold any code: "
                f"run `stepnet data fetch {kind.name}`, or move {folder.name} away"
            )
        held = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        return held[b"data"], np.asarray(held[kind.label_key])

    return [arrays(name) for name in kind.train_files], [arrays(kind.test_file)]


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles arrays and nothing else: a second safeguard after the checksum."""

    def find_class(self, module: str, name: str) -> Any:
        known = {"_reconstruct": np.empty(0).__reduce__()[0], "ndarray": np.ndarray, "dtype": np.dtype}
        if module.partition(".")[0] != "numpy" or name not in known:
            raise UserError(f"a pickle asks for {module}.{name}: nothing in it was run")
        return known[name]


def _read_npz(kind: Cifar, path: Path) -> tuple[Files, Files]:
    names = ("x_train", "y_train", "x_test", "y_test")
    # A small file can unpack to any size; int64 labels are the most that is expected.
    arrays = read_arrays(path, names, max(kind.train_images, kind.test_images) * PIXELS)
    return [arrays[:2]], [arrays[2:]]


def whole_numbers(labels: NDArray[np.generic], path: Path) -> Labels:
    """Return labels [N] or [N, 1] of any integer type as int64; raise for other types, which numpy would convert."""
    if labels.dtype.kind not in "iu":
        raise UserError(f"{path} holds labels of type {labels.dtype}: expected whole numbers")
    return labels.reshape(-1).astype(np.int64)


def _pixels(images: NDArray[np.generic], path: Path) -> Pixels:
    """Return images [N, 32, 32, 3] from that layout, from [N, 3, 32, 32], or from rows of colour planes."""
    if images.dtype != np.uint8:
        raise UserError(f"{path} holds images of type {images.dtype}: expected uint8")
    pixels = np.asarray(images, np.uint8)
    if images.shape[1:] == (SIDE, SIDE, CHANNELS):
        return pixels
    if images.shape[1:] in ((CHANNELS, SIDE, SIDE), (PIXELS,)):
        return np.ascontiguousarray(pixels.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1))
    raise UserError(f"{path} holds images of shape {images.shape}: expected [N, {SIDE}, {SIDE}, {CHANNELS}]")
