"""How cost grows: the exponent p of cost = c size^p, for depth, width, batch and image size.

    python benchmarks/growth.py [--repeats 3]

The network is a CIFAR ResNet under LM (depth 20, width 16, batch 4, 32 x 32 pixels) of which one figure is varied.
Exponents are fitted to the logarithms of the medians, which stand beside them. Converted: timm's ResNet of as many
basic blocks, 16 and 32 channels. Inspected: what `stepnet inspect` prints of a new network. Peaks are counted from
torch's allocations.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import torch
from script import measure
from torch import nn

import stepnet
from stepnet.extras import import_extra
from stepnet.nets import Backbone, ResidualNetwork
from stepnet.nets.blocks import basic
from stepnet.report.sketches import sketch
from stepnet.timing.harness import Row, growth, interleave
from stepnet.timing.steps import batch, gradient, peak_bytes

MIB = 2**20
DEPTHS = (20, 56, 110, 1202)
OTHERS = {"width": (16, 32, 64), "batch_size": (4, 16, 64), "image_size": (16, 32, 64)}
LINEAR = "≤ 1.05"  # in depth


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    depths = DEPTHS[:2] if quick else DEPTHS
    yield from of_steps("depth", depths, repeats, LINEAR)
    for axis, sizes in OTHERS.items():
        yield from of_steps(axis, sizes[:2] if quick else sizes, repeats, "")
    yield from of_handling(depths, repeats)


def of_steps(axis: str, sizes: Sequence[int], repeats: int, target: str) -> Iterator[Row]:
    """Measure the time and the peak memory of a forward and backward pass."""
    steps = [passes(**{axis: size}) for size in sizes]
    against = axis.replace("_", " ")
    yield timed(f"forward and backward pass against {against}", sizes, steps, repeats, target)
    peaks = [peak_bytes(each) / MIB for each in steps]
    yield growth(f"peak memory against {against}", sizes, peaks, "MiB", target)


def passes(depth: int = 20, width: int = 16, batch_size: int = 4, image_size: int = 32) -> Callable[[], None]:
    blocks = (depth - 2) // 6
    backbone = Backbone(basic, (width, 2 * width, 4 * width), (blocks,) * 3, stem_width=width, shortcut="subsample")
    images, _ = batch(batch_size, image_size)
    return gradient(ResidualNetwork(backbone, "lm"), images)


def of_handling(depths: Sequence[int], repeats: int) -> Iterator[Row]:
    """Measure building, saving, loading, converting and inspecting."""
    with tempfile.TemporaryDirectory() as folder:
        build = [partial(stepnet.create_model, f"resnet{depth}", scheme="lm") for depth in depths]
        networks = [make() for make in build]
        paths = [Path(folder) / f"{depth}.safetensors" for depth in depths]
        example = torch.zeros(1, 3, 32, 32)
        for name, variants in {
            "build": build,
            "save": [partial(stepnet.save, *each) for each in zip(networks, paths, strict=True)],
            "load": [partial(stepnet.load, path) for path in paths],
            "convert": [partial(stepnet.convert, timm_resnet(depth), "lm", example) for depth in depths],
            "inspect": [partial(described, network) for network in networks],
        }.items():
            yield timed(f"{name} against depth", depths, variants, repeats, LINEAR)


def timm_resnet(depth: int) -> nn.Module:
    resnet, blocks = import_extra("timm.models.resnet"), (depth - 2) // 6
    layers = (blocks, blocks, blocks - blocks // 2, blocks // 2)
    built: nn.Module = resnet.ResNet(resnet.BasicBlock, layers, num_classes=10, channels=(16, 16, 32, 32))
    return built


def described(network: nn.Module) -> str:
    return str(sketch(network, "network"))


def timed(what: str, sizes: Sequence[int], variants: Sequence[Callable[[], object]], repeats: int, target: str) -> Row:
    seconds = interleave(dict(zip(map(str, sizes), variants, strict=True)), repeats)
    return growth(what, sizes, [median(values) for values in seconds.values()], "s", target)


if __name__ == "__main__":
    measure("how cost grows", __doc__, rows, repeats=3)
