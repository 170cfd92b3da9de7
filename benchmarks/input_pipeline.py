"""Images per second of the input pipeline alone: stepnet against torchvision's per-image transforms.

    python benchmarks/input_pipeline.py [--out results/input_pipeline.json]

Both draw the CIFAR-10 training set in random order, pad 4, crop 32x32, flip, normalise, and batch by 128. torchvision's
transforms (v2, on tensors, the faster of its two inputs here) run in a DataLoader with two workers that stay alive
between epochs; stepnet runs in the one process that also trains. The two alternate, and the medians are compared.
The images are CIFAR-10 where it has been fetched, else noise of the same shape: the time does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from stepnet.data import Augmentation, Data, ImageSet, get_data, training_batches
from stepnet.errors import UserError
from stepnet.extras import import_extra

BATCH, WORKERS = 128, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="repetitions of each")
    parser.add_argument("--images", type=int, default=20_000, help="images of one torchvision repetition")
    parser.add_argument("--out", type=Path, help="write what was measured to this JSON file")
    options = parser.parse_args()

    busy = os.getloadavg()[0]  # what else the machine is doing
    data, origin = images_to_read()
    contestants = {"stepnet": stepnet_epoch(data), "torchvision": torchvision_epoch(data, options.images)}
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(options.repeats + 1):
        for name, epoch in contestants.items():
            rate = images_per_second(epoch(repeat))
            if repeat:  # the first is for warming up: worker processes start, pages are read
                rates[name].append(rate)

    medians = {name: statistics.median(values) for name, values in rates.items()}
    ratio = medians["stepnet"] / medians["torchvision"]
    table = Table("pipeline", "images/s, median", "lowest", "highest", title=f"input pipeline on {origin}")
    for name, values in rates.items():
        table.add_row(name, *(f"{value:,.0f}" for value in (medians[name], min(values), max(values))))
    table.add_row("ratio", f"{ratio:.1f}x")
    Console().print(table)
    if options.out:
        record = {
            "command": " ".join(["python", *sys.argv]),
            "images": origin,
            "batch": BATCH,
            "torchvision_workers": WORKERS,
            "cpus": os.cpu_count(),
            "load_average_before": busy,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "images_per_second": rates,
            "median": medians,
            "ratio": ratio,
        }
        options.out.write_text(json.dumps(record, indent=2) + "\n")


def images_to_read() -> tuple[Data, str]:
    try:
        return get_data("cifar10"), "cifar10"
    except UserError:
        images = np.random.default_rng(0).integers(0, 256, (50_000, 32, 32, 3), dtype=np.uint8)
        labels = np.zeros(len(images), np.int64)
        noise = ImageSet(images, labels, ("noise",), Augmentation(pad=4, flip=True))
        return Data("noise", noise, noise), "noise of the shape of cifar10"


Epoch = Callable[[int], Iterable[tuple[torch.Tensor, torch.Tensor]]]


def images_per_second(batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """From the first request to the last image. To the end: workers that are left early go on in the background."""
    start, count = time.perf_counter(), 0
    for images, _ in batches:
        count += len(images)
    return count / (time.perf_counter() - start)


def stepnet_epoch(data: Data) -> Epoch:
    return training_batches(data, BATCH, seed=0).epoch


def torchvision_epoch(data: Data, length: int) -> Epoch:
    v2 = import_extra("torchvision.transforms.v2")
    transform = v2.Compose(
        [
            v2.RandomCrop(32, padding=4),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(data.mean, data.std),
        ]
    )
    assert isinstance(data.train, ImageSet)
    images, labels = torch.from_numpy(data.train.images.transpose(0, 3, 1, 2).copy()), data.train.labels.tolist()

    class Images(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
        def __len__(self) -> int:
            return len(labels)

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return transform(images[index]), labels[index]

    dataset = Images()
    sampler = torch.utils.data.RandomSampler(dataset, num_samples=length)
    loader = torch.utils.data.DataLoader(dataset, BATCH, sampler=sampler, num_workers=WORKERS, persistent_workers=True)
    return lambda _: loader


if __name__ == "__main__":
    main()
