"""Images per second of `stepnet train`, end to end, over those of a plain script; and the limit of both.

    python benchmarks/train_vs_script.py [--repeats 4]

CIFAR-10, ResNet-20, batch 128, two threads. The plain script trains the same network as most scripts do: NCHW, eager,
torchvision's transforms on single images in a DataLoader with two workers. stepnet trains by its own loop, eager and
compiled, in epochs of a few steps; after each the script takes as many, twice (its A/A control), and before they are
counted a few that empty what its workers had read ahead. Evaluating, saving and compiling are not counted. The limit:
the rate of the network's convolutions over that of the machine's matrix multiply.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from script import measure
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

from stepnet import create_model
from stepnet.data import Data, ImageSet, get_data
from stepnet.timing.harness import CONTROL, Row, ratio
from stepnet.timing.shares import convolutions_over_products
from stepnet.training import Callback, Recipe, TrainConfig
from stepnet.training.loop import train_config
from stepnet.training.run import EpochMetrics
from stepnet.training.trainer import Trainer

BATCH, STEPS, READ_AHEAD, WORKERS = 128, 8, 4, 2


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    steps, size = (2, 16) if quick else (STEPS, BATCH)
    data = part(get_data("cifar10"), steps * size, size)
    script = plain_script(data, steps, size)
    for compiled in (False,) if quick else (False, True):
        rates = against(script, data, repeats, size, compiled)
        note = ", ".join(f"{name} {sorted(values)[len(values) // 2]:.0f}" for name, values in rates.items())
        mode = "compiled" if compiled else "eager"
        yield Row(
            f"images/s, stepnet train ({mode}) / plain script",
            ratio(rates, "stepnet", "script"),
            control=ratio(rates, CONTROL, "script"),
            target="≥ 1.3",
            note=f"({note} images/s)",
        )
    for channels_last in (False, True):
        yield convolutions_over_products("resnet20", size, channels_last)


def part(data: Data, count: int, tests: int) -> Data:
    """Return the first images of each set."""
    assert isinstance(data.train, ImageSet) and isinstance(data.test, ImageSet)
    train, test = (
        dataclasses.replace(images, images=images.images[:n], labels=images.labels[:n])
        for images, n in ((data.train, count), (data.test, tests))
    )
    return dataclasses.replace(data, train=train, test=test)


def against(script: Callable[[], float], data: Data, repeats: int, size: int, compiled: bool) -> dict[str, list[float]]:
    """Return images per second: in each repetition an epoch of a run, then the script; the first one warms up."""
    rates: dict[str, list[float]] = {"stepnet": [], "script": [], CONTROL: []}

    class Turns(Callback):
        def epoch(self, trainer: Trainer, line: EpochMetrics) -> None:
            taken = {"stepnet": line["images_per_second"], "script": script(), CONTROL: script()}
            for name, rate in taken.items() if line["epoch"] else ():
                rates[name].append(rate)

    recipe = Recipe(epochs=repeats + 1, batch_size=size, lr=0.01, milestones=())
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig("resnet20", "cifar10", recipe=recipe, out=str(Path(folder) / "run"), compile=compiled)
        train_config(config, callbacks=[Turns()], data=data)
    return rates


class Cifar(Dataset[tuple[Tensor, int]]):
    """CIFAR-10 as in torchvision: pictures with transforms."""

    def __init__(self, data: Data) -> None:
        from torchvision import transforms

        assert isinstance(data.train, ImageSet)
        self.images, self.labels = data.train.images, data.train.labels
        crop, flip = transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()
        normalise = transforms.Normalize(data.normalise.mean, data.normalise.std)
        self.transform: Any = transforms.Compose([crop, flip, transforms.ToTensor(), normalise])

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.images[index])), int(self.labels[index])


def plain_script(data: Data, steps: int, size: int) -> Callable[[], float]:
    """Return a function that takes `steps` steps and returns the images per second."""
    model = create_model("resnet20").train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    dataset = Cifar(data)
    endless = RandomSampler(dataset, replacement=True, num_samples=1 << 40)
    batches = iter(DataLoader(dataset, size, sampler=endless, num_workers=WORKERS))

    def train(count: int) -> None:
        for images, labels in islice(batches, count):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()

    def turn() -> float:
        train(READ_AHEAD)
        start = time.perf_counter()
        train(steps)
        return steps * size / (time.perf_counter() - start)

    return turn


if __name__ == "__main__":
    measure("stepnet train against a plain script", __doc__, rows, repeats=4, threads=2)
