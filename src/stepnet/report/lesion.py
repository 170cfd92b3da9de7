"""The lesion study (Veit et al. 2016; paper, section 1.1): the error of a trained network after blocks are dropped.

A dropped block's `f` is zero, so that its step is what the scheme carries on: `u_n` of a ResNet,
`(1 - k) u_n + k u_{n-1}` of an LM-ResNet, the projected input of a transition, the pooled input of a fractal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.arguments import Count, checked
from stepnet.conversion import ConvertedStep, Role, Split, StepSlope, state_in, with_state
from stepnet.errors import UserError
from stepnet.nets import Coupling, NetworkStep, training_mode
from stepnet.report.dynamics import check_is_layer, network_steps
from stepnet.schemes import Difference

ALL_PAIRS = 12  # the most blocks of which all pairs are dropped; of more, only pairs of neighbours


@dataclass(frozen=True)
class Lesion:
    """Errors in per cent of the whole network, and after dropping blocks, which are numbered by depth."""

    names: tuple[str, ...]
    transitions: frozenset[int]  # the blocks that change the shape
    intact: float
    single: dict[int, float]
    rescaled: dict[int, float]  # the same where a neighbour's step grows by that of the dropped block
    pairs: dict[tuple[int, int], float]

    @property
    def rows(self) -> list[tuple[str, float]]:
        """The rows of a table: what was dropped, and the error then."""
        singles = [(self.names[n], error) for n, error in self.single.items()]
        pairs = [(f"{self.names[a]} and {self.names[b]}", error) for (a, b), error in self.pairs.items()]
        return [("nothing", self.intact), *singles, *pairs]


@checked
def lesion_study(model: nn.Module, images: Tensor, labels: Tensor, batch_size: Count = 250) -> Lesion:
    """Measure the error on these images after dropping each block, each transition, and pairs of blocks.

    A dropped block is a longer step (paper, section 1.1), so each is also dropped with a neighbour's step made longer:
    that of the block before it in its stage, or after it.
    """
    if labels.shape != images.shape[:1] or not len(labels):
        shapes = f"labels of shape {tuple(labels.shape)}, images of {tuple(images.shape)}"
        raise UserError(f"{shapes}: expected a label for each image")
    stages = network_steps(model)
    steps = [step for stage in stages for step in stage]
    batches = list(zip(torch.split(images, int(batch_size)), torch.split(labels, int(batch_size)), strict=True))

    def error(*dropped: int, longer: tuple[int, float] | None = None) -> float:
        with ExitStack() as lesions:
            for n in dropped:
                lesions.enter_context(scaled(steps[n], 0.0))
            if longer is not None:
                lesions.enter_context(scaled(steps[longer[0]], longer[1]))
            return _error(model, batches)

    numbers = range(len(steps))
    pairs = combinations(numbers, 2) if len(steps) <= ALL_PAIRS else pairwise(numbers)
    return Lesion(
        tuple(step.name for step in steps),
        frozenset(n for n in numbers if steps[n].transition),
        error(),
        {n: error(n) for n in numbers},
        {n: error(n, longer=(m, 1 + steps[n].dt / steps[m].dt)) for n, m in _neighbours(stages).items()},
        {pair: error(*pair) for pair in pairs},
    )


def _neighbours(stages: Sequence[Sequence[NetworkStep]]) -> dict[int, int]:
    """Return, for each step that keeps the shape, its neighbour that does: the one before it, else the one after."""
    neighbours: dict[int, int] = {}
    first = 0
    for stage in stages:
        inside = [first + n for n, step in enumerate(stage) if not step.transition]
        first += len(stage)
        neighbours |= {n: inside[place - 1 if place else 1] for place, n in enumerate(inside) if len(inside) > 1}
    return neighbours


@contextmanager
def scaled(step: NetworkStep, factor: float) -> Iterator[None]:
    """Multiply the `f` of a step within the context; a factor of 0 gives 0, also for infinite values."""
    if isinstance(step.block, ConvertedStep) and step.role is not None:
        with _converted_scaled(step.block, step.role, factor):
            yield
        return
    block = step.block
    parts = (block.f, block.g) if isinstance(block, Coupling) else (block,)
    handles = [part.register_forward_hook(partial(_scale, factor)) for part in parts]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _scale(factor: float, module: nn.Module, args: object, f: Tensor | Difference) -> Tensor | Difference:
    if not isinstance(f, Difference):
        return _times(factor, f)
    if factor:
        return Difference(f.end + (factor - 1) * (f.end - f.start), f.start)
    pooled = f.end.shape != f.start.shape  # by a layer that ends a column of FractalNet
    return Difference(F.adaptive_max_pool2d(f.start, f.end.shape[2:]) if pooled else f.start, f.start)


def _times(factor: float, f: Tensor) -> Tensor:
    return factor * f if factor else torch.zeros_like(f)


def _scaled_branch(split: Split, factor: float) -> Split:
    """Return the split with its branch multiplied by a factor."""

    def terms(block: nn.Module, u: Tensor) -> tuple[Tensor, Tensor]:
        shortcut, f = split.terms(block, u)
        return shortcut, _times(factor, f)

    scaled = dataclasses.replace(split)
    vars(scaled).update(terms=terms)
    return scaled


def _scaled_slope(scaled: Role, factor: float) -> type[StepSlope]:
    """Return the slopes of a step, with those of one role multiplied by a factor."""

    class ScaledSlope(StepSlope):
        def block(self, v: Tensor, i: int) -> Any:
            output, result = super().block(v, i), self.role.result
            if self.role is not scaled:
                return output
            return with_state(output, v + factor * (state_in(output, result) - v) if factor else v, result)

    return ScaledSlope


@contextmanager
def _converted_scaled(step: ConvertedStep, role: Role, factor: float) -> Iterator[None]:
    before = step.step_roles
    check_is_layer(role)
    if role.split is not None:
        other = dataclasses.replace(role, split=_scaled_branch(role.split, factor))
        step.step_roles = tuple(other if each is role else each for each in before)
    else:
        step.step_slope = _scaled_slope(role, factor)
    try:
        yield
    finally:
        step.step_roles = before
        vars(step).pop("step_slope", None)


def _error(model: nn.Module, batches: Sequence[tuple[Tensor, Tensor]]) -> float:
    wrong = count = 0
    with training_mode(model, False), torch.inference_mode():
        for images, labels in batches:
            wrong += int((model(images).argmax(dim=1) != labels).sum())
            count += len(labels)
    return 100 * wrong / count
