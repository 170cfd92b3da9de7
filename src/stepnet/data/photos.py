"""Image files, decoded ahead of time by threads; small ones are decoded once into an array.

Threads, not processes: Pillow decodes and resizes outside of Python's lock, nothing is copied from one process to
another, and a signal to the process group finds no workers to kill.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepnet.data.arrays import map_array
from stepnet.data.augment import Augmentation, Pixels
from stepnet.data.datasets import Batch, ImageSet, Request
from stepnet.data.images import MARGIN, Look, centre_view, random_view, read_view
from stepnet.data.normalise import Normalisation, sample_of, statistics
from stepnet.errors import UserError
from stepnet.files import atomic_folder, exclusive_lock

BATCH = 256
AHEAD = 2  # batches that are decoded while one is used
CACHE_VERSION = 1  # of the cached arrays; part of their name

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Photos:
    """Image files of any size and their labels, as images of `side` x `side` pixels.

    Training views are random crops, resized and mirrored; the evaluation view is the centre. A file that cannot be
    decoded is reported with its path and left out of its batch; `unreadable` collects them.
    """

    paths: tuple[Path, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    side: int = 224
    workers: int = field(default_factory=lambda: min(8, os.cpu_count() or 1))
    unreadable: set[Path] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.side, self.side, 3

    def read(self, requests: Iterable[Request], normalise: Normalisation) -> Iterator[Batch]:
        """Yield the requested batches, without the files that cannot be decoded."""
        import torch

        for request, images, good in self.decoded(requests):
            if len(good) and not good.any():
                raise UserError(f"none of the {len(good)} images of a batch can be decoded: see the paths above")
            whole = images if good.all() else images[good]
            yield normalise(whole), torch.from_numpy(self.labels[request.indices[good]])

    def decoded(
        self, requests: Iterable[Request], margin: float = MARGIN
    ) -> Iterator[tuple[Request, Pixels, NDArray[np.bool_]]]:
        """Yield each request with its images and a mask of the decoded ones; `margin` is of the evaluation view."""
        pool = ThreadPoolExecutor(max(1, self.workers), thread_name_prefix="stepnet-decode")
        waiting: deque[tuple[Request, Pixels, list[Future[None]]]] = deque()
        try:
            for request in requests:
                images = np.empty((len(request.indices), *self.shape), np.uint8)
                views = self._views(request, margin)
                tasks = [
                    pool.submit(self._decode_into, place, self.paths[index], look, exact)
                    for place, index, (look, exact) in zip(images, request.indices.tolist(), views, strict=True)
                ]
                waiting.append((request, images, tasks))
                if len(waiting) > AHEAD:
                    yield self._finished(*waiting.popleft())
            while waiting:
                yield self._finished(*waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def decode_all(self, margin: float = MARGIN) -> tuple[Pixels, NDArray[np.intp]]:
        """Return the evaluation views of all files that can be decoded, and their indices."""
        every = np.arange(len(self))
        requests = (Request(every[start : start + BATCH], None) for start in range(0, len(self), BATCH))
        images = np.empty((len(self), *self.shape), np.uint8)
        good = np.zeros(len(self), np.bool_)
        for request, some, some_good in self.decoded(requests, margin):
            images[request.indices], good[request.indices] = some, some_good
        if not good.any():
            raise UserError(f"none of {len(self)} images can be decoded: see the paths above")
        return images[good], np.flatnonzero(good)

    def sample(self) -> Photos:
        """Return the images from which its statistics are computed."""
        places = sample_of(len(self))
        some = tuple(self.paths[place] for place in places)
        return Photos(some, self.labels[places], self.classes, self.side, self.workers, self.unreadable)

    def statistics(self) -> Normalisation:
        """Return mean and deviation of the evaluation views of a sample of the images."""
        return statistics(self.sample().decode_all()[0])

    def _views(self, request: Request, margin: float) -> Iterable[tuple[Look, bool]]:
        if request.words is not None:
            return ((random_view(word), False) for word in request.words.tolist())
        return ((centre_view(self.side, margin), True) for _ in request.indices)

    def _decode_into(self, place: Pixels, path: Path, look: Look, exact: bool) -> None:
        place[...] = read_view(path, self.side, look, exact=exact)

    def _finished(
        self, request: Request, images: Pixels, tasks: list[Future[None]]
    ) -> tuple[Request, Pixels, NDArray[np.bool_]]:
        problems = [task.exception() for task in tasks]  # each an `UnreadableImage`
        for index, problem in zip(request.indices.tolist(), problems, strict=True):
            if problem is not None and self.paths[index] not in self.unreadable:
                self.unreadable.add(self.paths[index])
                log.warning("%s: left out; %d so far", problem, len(self.unreadable))
        return request, images, np.asarray([problem is None for problem in problems], np.bool_)


def decode_once(photos: Photos, cache: Path, augmentation: Augmentation | None = None) -> ImageSet:
    """Decode all images that can be decoded: shorter side `photos.side` pixels, centre crop.

    They are cached in the folder `cache`, under a hash of the files' names, sizes and times; in memory if it cannot be
    written.
    """
    folder = cache / cache_key(photos)
    try:
        with exclusive_lock(folder):
            if not folder.is_dir():
                images, kept = photos.decode_all(margin=1.0)
                with atomic_folder(folder) as partial:
                    np.save(partial / "images.npy", images)
                    (partial / "kept.json").write_text(json.dumps(kept.tolist()))
    except OSError:
        images, kept = photos.decode_all(margin=1.0)
    else:
        images, kept = _mapped(photos, folder)
    paths = tuple(photos.paths[place] for place in kept.tolist())
    return ImageSet(images, photos.labels[kept], photos.classes, augmentation or Augmentation(), paths)


def cache_key(photos: Photos) -> str:
    """Return a cache key from the names, sizes and modification times of the files, and the image size."""
    digest = hashlib.sha256(f"{CACHE_VERSION} {photos.side}".encode())
    for path in photos.paths:
        try:
            status = path.stat()
            state = f"{status.st_size} {status.st_mtime_ns}"
        except OSError:  # a link to nothing: it will be reported when it is decoded
            state = "gone"
        digest.update(os.fsencode(path) + f"\0{state}\n".encode())
    return digest.hexdigest()[:24]


def _mapped(photos: Photos, folder: Path) -> tuple[Pixels, NDArray[np.intp]]:
    """Return the cached images, and the indices of their files."""
    try:
        kept = np.asarray(json.loads((folder / "kept.json").read_text()), np.intp)
        return map_array(folder / "images.npy", np.dtype(np.uint8), (len(kept), *photos.shape)), kept
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{error}: delete {folder}, and it is made again") from None
