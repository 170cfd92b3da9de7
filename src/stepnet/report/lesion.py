"""The lesion study (Veit et al. 2016; paper, section 1.1): the error of a trained network after blocks are dropped.

A dropped block's `f` is zero, so that its step is what the scheme carries on: `u_n` of a ResNet,
`(1 - k) u_n + k u_{n-1}` of an LM-ResNet, the projected input of a transition, the pooled input of a fractal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.arguments import Count, checked
from stepnet.conversion.places import with_state
from stepnet.conversion.split import Split
from stepnet.conversion.step import ConvertedStep, Role
from stepnet.errors import UserError
from stepnet.nets.stage import Coupling
from stepnet.report.dynamics import NetworkStep, network_steps
from stepnet.schemes import Difference

ALL_PAIRS = 12  # of so many blocks at most; of more, only pairs of neighbours


@dataclass(frozen=True)
class Lesion:
    """Errors in per cent: of the whole network, and after dropping blocks, by their numbers in order of depth."""

    names: tuple[str, ...]
    transitions: frozenset[int]  # the blocks that change the shape
    intact: float
    single: dict[int, float]
    pairs: dict[tuple[int, int], float]

    @property
    def rows(self) -> list[tuple[str, float]]:
        """A table: what was dropped, and the error then."""
        singles = [(self.names[n], error) for n, error in self.single.items()]
        pairs = [(f"{self.names[a]} and {self.names[b]}", error) for (a, b), error in self.pairs.items()]
        return [("nothing", self.intact), *singles, *pairs]


@checked
def lesion_study(model: nn.Module, images: Tensor, labels: Tensor, batch_size: Count = 250) -> Lesion:
    """Drop each block, each transition, and pairs of them, and measure the error on these images."""
    if labels.shape != images.shape[:1] or not len(labels):
        shapes = f"labels of shape {tuple(labels.shape)}, images of {tuple(images.shape)}"
        raise UserError(f"{shapes}: expected a label for each image")
    model.eval()
    steps = [step for stage in network_steps(model) for step in stage]
    batches = list(zip(torch.split(images, int(batch_size)), torch.split(labels, int(batch_size)), strict=True))

    def error(*dropped: int) -> float:
        with ExitStack() as lesions:
            for n in dropped:
                lesions.enter_context(without(steps[n]))
            return _error(model, batches)

    numbers = range(len(steps))
    pairs = combinations(numbers, 2) if len(steps) <= ALL_PAIRS else pairwise(numbers)
    return Lesion(
        tuple(step.name for step in steps),
        frozenset(n for n in numbers if steps[n].transition),
        error(),
        {n: error(n) for n in numbers},
        {pair: error(*pair) for pair in pairs},
    )


@contextmanager
def without(step: NetworkStep) -> Iterator[None]:
    """Within, the step's `f` is zero."""
    if isinstance(step.block, ConvertedStep) and step.role is not None:
        with _converted_without(step.block, step.role):
            yield
        return
    block = step.block
    parts = (block.f, block.g) if isinstance(block, Coupling) else (block,)
    handles = [part.register_forward_hook(_zero) for part in parts]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _zero(module: nn.Module, args: object, f: Tensor | Difference) -> Tensor | Difference:
    if not isinstance(f, Difference):
        return torch.zeros_like(f)
    pooled = f.end.shape != f.start.shape  # by a layer that ends a column of FractalNet
    return Difference(F.adaptive_max_pool2d(f.start, f.end.shape[2:]) if pooled else f.start, f.start)


class _NoBranch(Split):
    """A split whose branch gives zeros, of the shape that it has otherwise."""

    def terms(self, block: nn.Module, u: Tensor) -> tuple[Tensor, Tensor]:
        shortcut, f = super().terms(block, u)
        return shortcut, torch.zeros_like(f)


@contextmanager
def _converted_without(step: ConvertedStep, role: Role) -> Iterator[None]:
    before = step.step_roles
    if role.split is not None:
        fields = (getattr(role.split, field.name) for field in dataclasses.fields(Split))
        without = dataclasses.replace(role, split=_NoBranch(*fields))
        step.step_roles = tuple(without if each is role else each for each in before)
    else:
        whole = step._block

        def block(own: Role, v: Tensor, *rest: Any) -> Any:
            output = whole(own, v, *rest)
            return with_state(output, v, own.result) if own is role else output

        step.__dict__["_block"] = block
    try:
        yield
    finally:
        step.step_roles = before
        step.__dict__.pop("_block", None)


def _error(model: nn.Module, batches: Sequence[tuple[Tensor, Tensor]]) -> float:
    wrong = count = 0
    with torch.inference_mode():
        for images, labels in batches:
            wrong += int((model(images).argmax(dim=1) != labels).sum())
            count += len(labels)
    return 100 * wrong / count
