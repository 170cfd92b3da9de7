"""What is measured: a training step, a forward pass, and the peak memory of either."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from stepnet.errors import UserError

Step = Callable[[], None]


def training_step(model: nn.Module, inputs: Tensor, targets: Tensor, adamw: bool = False, **options: Any) -> Step:
    """Return a step of SGD with momentum and weight decay, or of AdamW; `options` are torch's, such as `fused`.

    Outputs are logits [..., classes] and targets [...]: of images, or of the tokens of sequences.
    """
    sgd = partial(torch.optim.SGD, momentum=0.9, weight_decay=1e-4)
    optimizer = (torch.optim.AdamW if adamw else sgd)(model.train().parameters(), lr=1e-4, **options)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def gradient(model: nn.Module, images: Tensor) -> Step:
    """Return a forward and backward pass, without the optimiser."""

    def step() -> None:
        model.zero_grad()
        model(images).sum().backward()

    return step


def forward_pass(model: nn.Module, images: Tensor) -> Step:
    """Return an inference pass."""
    model = model.eval()

    def step() -> None:
        with torch.inference_mode():
            model(images)

    return step


def check_takes_images(network: nn.Module, name: str) -> None:
    """Raise for a network of text: the batches here are of images."""
    if getattr(network, "context", None) is not None:
        raise UserError(f"{name} takes text, and bench times networks of images: name one, such as resnet20")


def batch(size: int, pixels: int = 32, classes: int = 10) -> tuple[Tensor, Tensor]:
    """Return random images and labels."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(size, 3, pixels, pixels, generator=generator)
    return images, torch.randint(classes, (size,), generator=generator)


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the peak of the bytes allocated on the CPU during `run`, beyond those allocated before.

    It adds up what torch's allocator reports, so it is exact, reproducible, and independent of the C library.
    """
    with silent_profiler(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    events = recorded.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    live = peak = 0
    for _, change in changes:
        live += change
        peak = max(peak, live)
    return peak


@contextmanager
def silent_profiler() -> Iterator[None]:
    """Discard stderr: torch's profiler writes to it whatever its log level."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
