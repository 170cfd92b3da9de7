"""A folder with a folder of images for each class: `--data FOLDER`.

    FOLDER/train/CLASS/…  FOLDER/val/CLASS/…       or test/ in place of val/; ImageNet's layout. With both, the epoch
                                                   is chosen on val/, and test/ is tested on.
    FOLDER/train/CLASS/…  FOLDER/val/images/…      with val/val_annotations.txt: Tiny ImageNet's
    FOLDER/CLASS/…                                 with a share of it for validation, `val_share`

Which images are for validation is a function of their names alone: a file that is added moves no other.
"""

from __future__ import annotations

import hashlib
import os
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepnet.data.augment import Augmentation
from stepnet.data.datasets import MOST_CLASSES, Data, register_data
from stepnet.data.images import SUFFIXES, UnreadableImage, image_size
from stepnet.data.normalise import Normalisation
from stepnet.data.photos import Photos, cache_key, decode_once
from stepnet.errors import UserError
from stepnet.files import printable, read_file, reason

VALIDATION = ("val", "test")
ANNOTATIONS = "val_annotations.txt"
LARGEST_ANNOTATIONS = 2**24  # bytes

DEFAULT_SIDE = 224  # of photos; images that are all small keep their own size
SMALL = 96  # pixels
DECODED_SIDE = 128  # up to this size images are decoded once, if all of them fit into …
DECODED_BYTES = 2**32
SAMPLE = 64  # images whose size is read

IMAGENET_CONSTANTS = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # of published weights

LabelledPaths = list[tuple[Path, str]]  # each image with its class


@dataclass(frozen=True)
class FolderImages:
    """The images of a folder with their classes, and the sorted classes."""

    train: LabelledPaths
    validation: LabelledPaths
    classes: tuple[str, ...]
    test: LabelledPaths | None = None  # of a folder that has both; else it is tested on `validation`


def folder_data(folder: Path, cache: Path, side: int | None = None, val_share: float | None = None) -> Data:
    """Return the data set in `folder`, with images of `side` x `side` pixels.

    Small images are decoded once, into a file in the folder `cache`; larger ones in every epoch.
    """
    images = find_images(folder, val_share)
    side = side or common_side([path for path, _ in images.train])
    parts = (images.train, images.test or images.validation, *([images.validation] if images.test else []))
    train, test, *validation = (photos(part, images.classes, side) for part in parts)
    name = folder.resolve().name
    fits = sum(map(len, parts)) * side * side * 3 <= DECODED_BYTES
    kept = cache / f"{cache_key(train.sample())}-statistics.json"
    if side > DECODED_SIDE or not fits:
        return Data(name, train, test, kept=kept, validation=next(iter(validation), None))
    augmentation = Augmentation(pad=max(1, side // 8), flip=True)  # CIFAR's 4 pixels of 32
    once, *held_out = (decode_once(part, cache) for part in (test, *validation))
    chosen_on = held_out[0] if held_out else None
    return Data(name, decode_once(train, cache, augmentation), once, kept=kept, validation=chosen_on)


@register_data("imagenet")
def imagenet(root: Path) -> Data:
    """Return the class folders `root/imagenet/train` and `root/imagenet/val`, with images of 224 x 224 pixels."""
    images = find_images(root / "imagenet")
    train, test = (photos(part, images.classes, DEFAULT_SIDE) for part in (images.train, images.validation))
    return Data("imagenet", train, test, IMAGENET_CONSTANTS)


def find_images(folder: Path, val_share: float | None = None) -> FolderImages:
    """List the images below `folder`, in one of the known layouts."""
    if val_share is not None and not 0 < val_share < 1:
        raise UserError(f"val_share = {val_share}: expected a share between 0 and 1, such as 0.1")
    train = folder / "train" if (folder / "train").is_dir() else folder
    held_out = (
        next((folder / name for name in VALIDATION if (folder / name).is_dir()), None) if train != folder else None
    )
    images = _class_folders(train)
    if held_out is not None and val_share is not None:
        raise UserError(
            f"val_share = {val_share}, but {printable(folder)} has a folder {held_out.name}/: give only one"
        )
    if held_out is not None:
        validation = _annotated(held_out) if (held_out / ANNOTATIONS).exists() else _class_folders(held_out)
    elif val_share is not None:
        validation = [pair for pair in images if position(pair[0].relative_to(train)) < val_share]
        images = [pair for pair in images if position(pair[0].relative_to(train)) >= val_share]
    else:
        raise UserError(
            f"{printable(folder)} has no images for validation: expected train/ and val/ (or test/) in it, "
            "or a share such as --val-share 0.1"
        )
    classes = tuple(sorted({name for _, name in images}))
    _check(folder, images, validation, classes)
    return FolderImages(images, validation, classes, _labelled_test(folder, held_out, set(classes)))


def _labelled_test(folder: Path, held_out: Path | None, classes: set[str]) -> LabelledPaths | None:
    """Return the images of test/ next to val/ if they have classes, which Tiny ImageNet's test/ has not."""
    if held_out is None or held_out.name != "val" or not (folder / "test").is_dir():
        return None
    images = _class_folders(folder / "test")
    return images if images and {name for _, name in images} <= classes else None


def position(path: Path) -> float:
    """Hash a name to a number in [0, 1)."""
    return int.from_bytes(hashlib.sha256(os.fsencode(path.as_posix())).digest()[:6], "big") / 2**48


def common_side(paths: list[Path]) -> int:
    """Return the median shorter side of small images, else `DEFAULT_SIDE`."""
    sides = []
    for path in paths[:: -(-len(paths) // SAMPLE)]:
        try:
            sides.append(min(image_size(path)))
        except UnreadableImage as error:
            problem = error
    if not sides:
        raise problem
    side = round(statistics.median(sides))
    return side if side <= SMALL else DEFAULT_SIDE


def photos(images: LabelledPaths, classes: tuple[str, ...], side: int) -> Photos:
    """Return the files as a source of images."""
    label_of = {name: label for label, name in enumerate(classes)}
    labels = np.asarray([label_of[name] for _, name in images], np.int64)
    return Photos(tuple(path for path, _ in images), labels, classes, side)


def _class_folders(folder: Path) -> LabelledPaths:
    """Return the images below each folder in `folder`, sorted by name."""
    try:
        with os.scandir(folder) as entries:
            classes = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read {printable(folder)}: {reason(error)}; expected a folder of images for each class"
        ) from None
    strange = next((name for name in classes if not name.isprintable()), None)
    if strange is not None:
        raise UserError(f"{printable(folder / strange)} cannot name a class: expected printable UTF-8")
    if len(classes) > MOST_CLASSES:
        raise UserError(
            f"{printable(folder)} holds {len(classes):,} folders: expected at most {MOST_CLASSES:,} classes"
        )
    images = [(path, name) for name in classes for path in _images_below(folder / name)]
    if not images:
        raise UserError(f"{printable(folder)} holds no images: expected {printable(folder)}/CLASS/NAME.jpg")
    return images


def _images_below(folder: Path) -> Iterable[Path]:
    paths = [
        os.path.join(parent, name)  # noqa: PTH118  (a million times)
        for parent, _, names in os.walk(folder)
        for name in names
        if os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122
    ]
    return map(Path, sorted(paths))


def _annotated(folder: Path) -> LabelledPaths:
    """Read Tiny ImageNet's validation set: lines of NAME, CLASS and a box, separated by tabs."""
    path = folder / ANNOTATIONS
    lines = read_file(path, LARGEST_ANNOTATIONS).decode("utf-8", "replace").splitlines()
    fields = [line.split("\t") for line in lines if line.strip()]
    for number, line in enumerate(fields):
        if len(line) < 2 or "/" in line[0]:
            raise UserError(f"{printable(path)}, line {number + 1}: expected NAME, tab, CLASS")
    return sorted((folder / "images" / line[0], line[1]) for line in fields)


def _check(folder: Path, train: LabelledPaths, validation: LabelledPaths, classes: tuple[str, ...]) -> None:
    strange = sorted({name for _, name in validation} - set(classes))
    where = printable(folder)
    if strange:
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        raise UserError(f"{where}: class {strange[0]!r}{more} is in the validation set but not in the training set")
    if len(classes) < 2:
        raise UserError(f"{where} holds one class, {classes[0]!r}: expected a folder for each of two or more")
    if not validation:
        raise UserError(f"{where}: of {len(train)} images none is for validation: use a larger share")
