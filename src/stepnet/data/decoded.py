"""Small images, decoded once into one array on disk and from then on memory-mapped."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np

from stepnet.data.arrays import map_array
from stepnet.data.augment import Augmentation
from stepnet.data.datasets import ImageSet
from stepnet.data.photos import Photos
from stepnet.errors import UserError
from stepnet.files import alone, whole_folder

VERSION = 1  # of what is kept; another one is another name


def decode_once(photos: Photos, cache: Path, augmentation: Augmentation | None = None) -> ImageSet:
    """The images with the shorter side at `photos.side` pixels and the middle cut out, those that can be decoded.

    They are kept in `cache` under a name that stands for the files' names, sizes and times; where it cannot be
    written, in memory.
    """
    folder = cache / fingerprint(photos)
    augmentation = augmentation or Augmentation()
    try:
        with alone(folder):
            if not folder.is_dir():
                images, kept = photos.decode_all(margin=1.0)
                with whole_folder(folder) as partial:
                    np.save(partial / "images.npy", images)
                    (partial / "kept.json").write_text(json.dumps(kept.tolist()))
    except OSError:
        images, kept = photos.decode_all(margin=1.0)
        return ImageSet(images, photos.labels[kept], photos.classes, augmentation)
    return _mapped(photos, folder, augmentation)


def fingerprint(photos: Photos) -> str:
    """A name for these files at this size: another file, another length or another time gives another name."""
    digest = hashlib.sha256(f"{VERSION} {photos.side}".encode())
    for path in photos.paths:
        try:
            status = path.stat()
            state = f"{status.st_size} {status.st_mtime_ns}"
        except OSError:  # a link to nothing: it will be reported when it is decoded
            state = "gone"
        digest.update(os.fsencode(path) + f"\0{state}\n".encode())
    return digest.hexdigest()[:24]


def _mapped(photos: Photos, folder: Path, augmentation: Augmentation) -> ImageSet:
    try:
        kept = np.asarray(json.loads((folder / "kept.json").read_text()), np.intp)
        images = map_array(folder / "images.npy", np.dtype(np.uint8), (len(kept), *photos.shape))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{error}: delete {folder}, and it is made again") from None
    return ImageSet(images, photos.labels[kept], photos.classes, augmentation)
