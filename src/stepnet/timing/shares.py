"""The time of a training step by kind of operation, and the rate of its convolutions against a matrix multiply."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.profiler import ProfilerActivity, profile

from stepnet.nets import Flops, create_model, model_entry
from stepnet.timing.harness import Row, Spread, interleave, steady_clock
from stepnet.timing.steps import Step, batch, check_takes_images, silent_profiler, training_step

# By parts of the names of torch's operators; the first match counts. Schemes combine states by lerp, add and sub.
CONVOLUTION, OTHER = "convolution", "other"
KINDS = {
    CONVOLUTION: ("conv", "mkldnn", "nnpack", "slow_conv"),
    "matrix product": ("mm", "addmm", "bmm", "linear", "attention"),
    "normalisation": ("norm",),
    "optimiser": ("_foreach", "_fused", "optimizer"),
    "activation, pooling": ("relu", "threshold", "pool", "gelu", "softmax", "nll"),
    "the scheme": ("lerp", "add", "sub", "mul", "unbind", "stack", "select"),
}


def time_shares(name: str, size: int = 32, steps: int = 5) -> Iterator[Row]:
    """Yield the share of each kind of operation in an eager training step of a registered network."""
    entry = model_entry(name)
    images, labels = batch(size, entry.image_size, 10)
    model = create_model(name, num_classes=10)
    check_takes_images(model, name)
    step = training_step(model, images, labels)
    spent = _seconds_by_kind(step, steps)
    seconds = sum(spent.values())
    for kind, part in sorted(spent.items(), key=lambda item: -item[1]):
        note = ""
        if kind == CONVOLUTION:
            reached, limit = _rate(step, part), matrix_multiply_rate()
            note = f"{reached:.0f} GFLOP/s, {reached / limit:.2f} of the {limit:.0f} of a matrix multiply"
        yield Row(f"{name}: {kind}", Spread.exact(100 * part / seconds), "%", note=note)
    yield Row(f"{name}: input", Spread.exact(100 * _input_seconds(size) / seconds), "%", note="beside the step")


def convolutions_over_products(name: str, size: int, channels_last: bool, steps: int = 3) -> Row:
    """Measure the rate of the convolutions of a training step over that of a matrix multiply, which is the limit."""
    images, labels = batch(size)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = create_model(name).to(memory_format=layout)  # type: ignore[call-overload]
    step = training_step(model, images.contiguous(memory_format=layout), labels)
    spent = _seconds_by_kind(step, steps)
    reached, limit = _rate(step, spent[CONVOLUTION]), matrix_multiply_rate()
    share = spent[CONVOLUTION] / sum(spent.values())
    return Row(
        f"convolutions / matrix multiply, {name}, {'channels last' if channels_last else 'NCHW'}",
        Spread.exact(reached / limit),
        note=f"({reached:.0f} of {limit:.0f} GFLOP/s; {share:.0%} of a step)",
    )


def _seconds_by_kind(step: Step, steps: int) -> dict[str, float]:
    """Return the seconds of each kind of operation in a step, by the profiler's shares."""
    step()  # warm
    clock = steady_clock()
    with silent_profiler(), profile(activities=[ProfilerActivity.CPU]) as recorded:
        start = clock()
        for _ in range(steps):
            step()
        seconds = (clock() - start) / steps
    spent = dict.fromkeys([*KINDS, OTHER], 0.0)
    for event in recorded.key_averages():
        spent[_kind(event.key)] += event.self_cpu_time_total
    total = sum(spent.values())
    return {kind: seconds * part / total for kind, part in spent.items()}


def _rate(step: Step, seconds: float) -> float:
    """Return the GFLOP/s of the convolutions and products of a step that take `seconds`."""
    with Flops() as counter:
        step()
    rate: float = counter.total / seconds / 1e9
    return rate


def matrix_multiply_rate(n: int = 1024, repeats: int = 5) -> float:
    """Measure the best GFLOP/s of a product of two n x n matrices."""
    a, b = torch.randn(n, n), torch.randn(n, n)
    seconds = interleave({"product": lambda: torch.mm(a, b)}, repeats)["product"]
    return 2 * n**3 / min(seconds) / 1e9


def _input_seconds(size: int, batches: int = 20) -> float:
    """Measure the seconds of the input pipeline for a batch of CIFAR's image size."""
    import numpy as np

    from stepnet.data import Augmentation, Data, ImageSet, training_batches

    images = np.zeros((size * batches, 32, 32, 3), np.uint8)
    noise = ImageSet(images, np.zeros(len(images), np.int64), ("noise",), Augmentation(pad=4, flip=True))
    loader = training_batches(Data("noise", noise, noise), size, seed=0)
    return min(interleave({"epoch": lambda: list(loader.epoch(0))}, 3)["epoch"]) / batches


def _kind(operator: str) -> str:
    return next((kind for kind, names in KINDS.items() if any(name in operator.lower() for name in names)), OTHER)
