"""Images per second of the input pipeline alone: stepnet against torchvision's data sets and transforms.

python benchmarks/input_pipeline.py [--repeats 5]

arrays: 50,000 images of 32x32, pad 4, crop, mirror. 64x64: a folder of photos of that size, which stepnet decodes once
(not counted). 224: a folder of JPEGs of 500x375, random crops of random scale. torchvision runs its data sets and
transforms in a DataLoader with two workers that stay alive between epochs; stepnet in the one process that also trains,
with two threads where it decodes. Both shuffle, normalise and batch by 128.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from script import measure

from stepnet.data import Augmentation, Data, ImageSet, get_data, training_batches
from stepnet.data.photos import Photos
from stepnet.timing.harness import Row, Spread, interleave, ratio

BATCH, WORKERS, CLASSES = 128, 2, 10


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        write_folder(root / "small", 800, (64, 64))
        write_folder(root / "photos", 256, (500, 375))
        yield from compared("arrays of 32x32", of_arrays(), repeats, "")
        if quick:
            return
        yield from compared("a folder of 64x64, once decoded", of_small(root), repeats, "≥ 3")
        yield from compared("a folder of JPEGs at 224x224", of_photos(root), repeats, "≥ 1")


def compared(what: str, contestants: dict[str, Callable[[], int]], repeats: int, target: str) -> Iterator[Row]:
    """Yield the images per second of both, and their ratio."""
    counts = {name: epoch() for name, epoch in contestants.items()}  # workers start, pages are read
    seconds = interleave(contestants, repeats, time.perf_counter, warmup=0)
    rates = {name: Spread.of([counts[name] / each for each in seconds[name]]) for name in contestants}
    for name, rate in rates.items():
        yield Row(f"{what}: {name}", rate, "images/s", note=f"{counts[name]:,} images")
    scaled = {name: [each / counts[name] for each in values] for name, values in seconds.items()}
    yield Row(f"{what}: ratio", ratio(scaled, "torchvision", "stepnet"), "x", target=target)


def of_arrays() -> dict[str, Callable[[], int]]:
    from torchvision.transforms import v2

    pixels = np.random.default_rng(0).integers(0, 256, (50_000, 32, 32, 3), dtype=np.uint8)
    images = ImageSet(pixels, np.arange(50_000) % CLASSES, tuple("0123456789"), Augmentation(pad=4, flip=True))
    data = Data("noise", images, images)
    tensors = torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())
    transform = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), *to_floats(data)])

    class Arrays(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 1500

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return transform(tensors[index]), index % CLASSES

    return {"stepnet": stepnet(data), "torchvision": torchvision(Arrays())}


def of_small(root: Path) -> dict[str, Callable[[], int]]:
    from torchvision.transforms import v2

    data = get_data(root / "small", root / "cache", val_share=0.001, image_size=64)
    assert isinstance(data.train, ImageSet) and isinstance(data.train.images.base, np.memmap)
    return of_folder(data, root / "small", v2.RandomCrop(64, padding=8))


def of_photos(root: Path) -> dict[str, Callable[[], int]]:
    from torchvision.transforms import v2

    data = get_data(root / "photos", root / "cache", val_share=0.01)
    assert isinstance(data.train, Photos) and data.train.workers == WORKERS
    return of_folder(data, root / "photos", v2.RandomResizedCrop(224, antialias=True))


def of_folder(data: Data, folder: Path, crop: Callable[[Any], Any]) -> dict[str, Callable[[], int]]:
    from torchvision import datasets
    from torchvision.transforms import v2

    transform = v2.Compose([crop, v2.RandomHorizontalFlip(), v2.PILToTensor(), *to_floats(data)])
    return {"stepnet": stepnet(data), "torchvision": torchvision(datasets.ImageFolder(str(folder), transform))}


def to_floats(data: Data) -> list[Callable[[Any], Any]]:
    from torchvision.transforms import v2

    return [v2.ToDtype(torch.float32, scale=True), v2.Normalize(data.normalise.mean, data.normalise.std)]


def stepnet(data: Data) -> Callable[[], int]:
    batches = training_batches(data, BATCH, seed=0)
    return lambda: sum(len(images) for images, _ in batches.epoch(0))


def torchvision(dataset: Any) -> Callable[[], int]:
    loader = torch.utils.data.DataLoader(dataset, BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)
    return lambda: sum(len(images) for images, _ in loader)


def write_folder(folder: Path, count: int, size: tuple[int, int]) -> None:
    """Write JPEGs that are as smooth and as large as photos."""
    rng = np.random.default_rng(0)
    for i in range(count):
        path = folder / str(i % CLASSES) / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = rng.integers(0, 256, (size[1] // 12, size[0] // 12, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path, quality=90)


if __name__ == "__main__":
    measure("input pipeline", __doc__, rows, repeats=5)
