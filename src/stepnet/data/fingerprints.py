"""A fingerprint of a data set: a short text by which a run recognises the data that it was trained on.

It covers class names, sizes, labels and the names of files; contents as far as that is cheap, in full for an array of
up to `CHEAP` bytes and by an evenly spread sample otherwise.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from stepnet.data.datasets import Data, ImageSet, Request, Source
from stepnet.data.images import LARGEST_FILE
from stepnet.data.normalise import Normalisation
from stepnet.data.photos import Photos
from stepnet.data.text import Text
from stepnet.errors import UserError
from stepnet.files import read_file

CHEAP = 2**28  # bytes that are read in full: CIFAR, and smaller sets
SAMPLE = 16  # items that are read otherwise


def fingerprint(data: Data) -> str:
    """Return a fingerprint such as `1497+300 images of 8x8x1 in 10 classes, sha256 3f1c…`."""
    digest = hashlib.sha256()
    for source in (data.train, data.test, *([data.validation] if data.validation else [])):
        digest.update(repr((source.classes, source.shape, len(source))).encode())
        for part in _parts(source):
            digest.update(part)
    size = "x".join(map(str, data.train.shape))
    items = "sequences" if isinstance(data.train, Text) else "images"
    counts = f"{len(data.train)}+{len(data.test)} {items} of {size} in {data.num_classes} classes"
    return f"{counts}, sha256 {digest.hexdigest()[:12]}"


def _parts(source: Source) -> Iterator[bytes | memoryview]:
    places = np.unique(np.linspace(0, len(source) - 1, SAMPLE).round().astype(np.intp))
    labels = getattr(source, "labels", None)
    if isinstance(labels, np.ndarray):
        yield labels.tobytes()
    if isinstance(source, ImageSet):
        whole = source.images.nbytes <= CHEAP
        yield np.ascontiguousarray(source.images if whole else source.images[places]).data
    elif isinstance(source, Text):
        yield source.tokens.tobytes()
    elif isinstance(source, Photos):
        for path in source.paths:
            yield f"{path.parent.name}/{path.name} {_size(path)}\n".encode(errors="surrogateescape")
        for place in places:
            with suppress(UserError):  # a file that cannot be read is reported when it is decoded
                yield read_file(source.paths[place], LARGEST_FILE)
    else:
        yield from _items(source, places)


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116  (a million times)
    except OSError:
        return -1


def _items(source: Source, places: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Iterator[bytes]:
    """Yield a sample of the items of a source, or `random` if reading them twice gives different items."""
    channels = source.shape[-1] if source.shape else 1
    plain = Normalisation((0.0,) * channels, (1.0,) * channels)
    first, again = (next(iter(source.read([Request(places, None)], plain))) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        content = one.numpy().tobytes()
        yield content if content == other.numpy().tobytes() else b"random"
