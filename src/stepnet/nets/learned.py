"""`stepnet.coefficients`: the learned `k_n` of a network, by layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from stepnet.arguments import checked


@runtime_checkable
class HasCoefficients(Protocol):
    """A module whose scheme has trainable coefficients: our stages, and those that `convert` makes."""

    def named_coefficients(self) -> Iterator[tuple[str, Tensor]]:
        """The name of each step that owns a `k`, relative to the module, with its `k`."""
        ...


@checked
def coefficients(model: nn.Module) -> dict[str, float | list[float]]:
    """`k_n` by the name of its layer, in order of depth: a float each, or one for each channel."""
    found: dict[str, float | list[float]] = {}
    for path, module in model.named_modules():
        if isinstance(module, HasCoefficients):
            for name, k in module.named_coefficients():
                found[f"{path}.{name}" if path else name] = k.detach().flatten().squeeze().tolist()
    return found
