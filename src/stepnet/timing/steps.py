"""What is timed: a training step, a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Step = Callable[[], None]


def training_step(model: nn.Module, images: Tensor, labels: Tensor, sgd: Mapping[str, bool] | None = None) -> Step:
    """One step of SGD with momentum and weight decay; `sgd` are options of torch's, such as `fused`."""
    optimizer = torch.optim.SGD(model.train().parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4, **sgd or {})

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def gradient(model: nn.Module, images: Tensor) -> Step:
    """Forward and backward pass alone: what memory is about."""

    def step() -> None:
        model.zero_grad()
        model(images).sum().backward()

    return step


def forward_pass(model: nn.Module, images: Tensor) -> Step:
    """Inference on a batch."""
    model = model.eval()

    def step() -> None:
        with torch.inference_mode():
            model(images)

    return step


def batch(size: int, pixels: int = 32, classes: int = 10) -> tuple[Tensor, Tensor]:
    """Noise of the shape of a data set: the time does not depend on the numbers."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(size, 3, pixels, pixels, generator=generator)
    return images, torch.randint(classes, (size,), generator=generator)
