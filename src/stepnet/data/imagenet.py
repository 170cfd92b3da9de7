"""ImageNet, or any other folder of class folders: `ROOT/imagenet/train/CLASS/*.JPEG`, `ROOT/imagenet/val/CLASS/*.JPEG`.

Training: the shorter side is sampled in [256, 480], then a crop of random scale and aspect ratio is resized to 224
and mirrored every second time. Evaluation: shorter side 256, one centre crop of 224. The transforms are
torchvision's (`stepnet[imagenet]`), and draw from a generator seeded by the image's own random word.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from stepnet.data.datasets import Batch, Data, Request, register_data
from stepnet.data.normalise import Normalisation
from stepnet.errors import UserError, first_line

SIZE = 224
SUFFIXES = frozenset({".jpeg", ".jpg", ".png", ".webp", ".bmp"})
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # the customary ones, which published weights expect

log = logging.getLogger(__name__)

Key = tuple[int, int | None]  # an image and its random word
Decoded = tuple[torch.Tensor, int]


@register_data("imagenet")
def imagenet(root: Path) -> Data:
    """The class folders in `root/imagenet`."""
    folder = root / "imagenet"
    return Data("imagenet", ImageFolder.scan(folder / "train"), ImageFolder.scan(folder / "val"), MEAN, STD)


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """Image files, decoded when asked for, in `workers` processes (0: in this one).

    A file that cannot be decoded is reported with its path and left out of its batch; `unreadable` collects them.
    """

    paths: tuple[Path, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    workers: int = field(default_factory=lambda: min(8, os.cpu_count() or 1))
    unreadable: set[Path] = field(default_factory=set)

    @classmethod
    def scan(cls, folder: Path, **options: Any) -> ImageFolder:
        """The images below `folder`; the classes are its folders, in the order of their names."""
        try:
            classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        except OSError as error:
            raise UserError(f"cannot read {folder}: {error.strerror}; expected a folder of class folders") from None
        paths, labels = [], []
        for label, name in enumerate(classes):
            files = sorted(path for path in (folder / name).rglob("*") if path.suffix.lower() in SUFFIXES)
            paths += files
            labels += [label] * len(files)
        if not paths:
            raise UserError(f"{folder} holds no images: expected {folder}/CLASS/NAME.JPEG")
        return cls(tuple(paths), np.asarray(labels, np.int64), tuple(classes), **options)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, int, int]:
        return SIZE, SIZE, 3

    def read(self, requests: Iterable[Request], normalise: Normalisation) -> Iterator[Batch]:
        """The batches asked for, decoded ahead of time when there are workers."""
        loader = torch.utils.data.DataLoader(
            _Decoder(self.paths, self.labels),
            batch_sampler=map(_keys, requests),
            num_workers=self.workers,
            collate_fn=list,
            generator=torch.Generator(),  # its own: a loader draws a seed, and the run's generator stays as it was
        )
        for items in loader:
            decoded = [item for item in items if not isinstance(item, _Unreadable)]
            for item in items:
                if isinstance(item, _Unreadable):
                    self._report(item)
            if items and not decoded:
                raise UserError(f"none of the {len(items)} images of a batch can be decoded: see the paths above")
            yield _collate(decoded, normalise)

    def _report(self, item: _Unreadable) -> None:
        if item.path not in self.unreadable:
            self.unreadable.add(item.path)
            log.warning("%s skipped (%s); %d so far", item.path, item.reason, len(self.unreadable))


@dataclass(frozen=True)
class _Unreadable:
    path: Path
    reason: str


class _Decoder(torch.utils.data.Dataset[Decoded | _Unreadable]):
    """From a key to an image [3, 224, 224] of bytes and its label."""

    def __init__(self, paths: tuple[Path, ...], labels: NDArray[np.int64]) -> None:
        v2 = _torchvision_transforms()
        self.paths, self.labels = paths, labels
        self.training = v2.Compose(
            [
                v2.RandomResize(256, 481),  # of the shorter side; the upper end is exclusive
                v2.RandomResizedCrop(SIZE, antialias=True),
                v2.RandomHorizontalFlip(),
                v2.PILToTensor(),
            ]
        )
        self.evaluation = v2.Compose([v2.Resize(256), v2.CenterCrop(SIZE), v2.PILToTensor()])

    def __getitem__(self, key: Key) -> Decoded | _Unreadable:
        index, word = key
        path = self.paths[index]
        try:
            with Image.open(path) as file:
                image = file.convert("RGB")  # grey, CMYK and palettes too
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            return _Unreadable(path, first_line(error))
        label = int(self.labels[index])
        if word is None:
            return self.evaluation(image), label
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(word)
            return self.training(image), label


def _keys(request: Request) -> list[Key]:
    indices = request.indices.tolist()
    words = [None] * len(indices) if request.words is None else request.words.tolist()
    return list(zip(indices, words, strict=True))


def _collate(decoded: list[Decoded], normalise: Normalisation) -> Batch:
    images = np.empty((len(decoded), SIZE, SIZE, 3), np.uint8)
    for place, (image, _) in zip(images, decoded, strict=True):
        place[...] = image.permute(1, 2, 0).numpy()
    return normalise(images), torch.tensor([label for _, label in decoded], dtype=torch.int64)


def _torchvision_transforms() -> Any:
    try:
        from torchvision.transforms import v2
    except ImportError:
        raise UserError("ImageNet needs torchvision: pip install 'stepnet[imagenet]'") from None
    except RuntimeError as error:  # compiled for another build of torch
        raise UserError(
            f"torchvision does not fit this torch ({first_line(error)}): install builds of the same kind"
        ) from None
    return v2
