"""Trial passes on blank items, before anything is written: a network that cannot be trained fails here."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from stepnet.data import Request, Text
from stepnet.errors import UserError, first_line
from stepnet.nets import KineticCost, drawn_options

if TYPE_CHECKING:
    from stepnet.training.trainer import Trainer

TIMED_ITEMS = 8
STEP_COST = 3  # a step in forward passes without gradients: the backward pass is about two


def check_forward(trainer: Trainer) -> None:
    """Pass the smallest batch of an epoch through a copy of the network; raise if that fails.

    Batch norm refuses a batch of one image, which a process may get from a short last batch; images may be too small.
    """
    batches, recipe, model = trainer.batches, trainer.recipe, trainer.config.model
    parts = [replace(batches, rank=rank).positions(len(batches) - 1) for rank in range(trainer.processes.count)]
    counts = [part.stop - part.start for part in parts if part.stop > part.start]
    smallest = min((count // min(count, recipe.accumulate) for count in counts), default=2)
    try:
        network = copy.deepcopy(trainer.network)
    except Exception:  # a module of the user's that cannot be copied
        return
    items, size = trainer.task.items, "x".join(map(str, trainer.data.train.shape))
    for count in (2, *([1] if smallest == 1 else [])):
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                outputs = forward(trainer, network, network, count)
        except (RuntimeError, ValueError, IndexError) as error:
            if count == 1:
                what = f"batches of {recipe.batch_size} leave one of {len(trainer.data.train):,} {items} alone"
                advice = f"({first_line(error)[:60]}): use another --batch-size, or --freeze-bn"
                raise UserError(f"{what}, on which {model} cannot train {advice}") from error
            what = f"{model} cannot be trained on {items} of {size}: {first_line(error)}"
            if isinstance(source := trainer.data.train, Text):
                advice = f"expected a network of {len(source.classes)} tokens, for {size} at a time or more"
            else:
                advice = f"use larger {items} or another network"
            raise UserError(f"{what}; {advice}") from error
        if not isinstance(outputs, Tensor):
            raise UserError(f"{model} returns a {type(outputs).__name__}: expected a tensor")
        try:
            trainer.task.check_outputs(outputs)
        except UserError as error:
            raise UserError(f"{model}: {error}") from None


def estimate_step(trainer: Trainer) -> float | None:
    """Estimate the seconds of a training step from forward passes of a few items; None where that would mislead.

    Whoever waits for the first step of a slow network should know how long: measured times follow from the second step.
    """
    if trainer.processes.count > 1 or trainer.processes.device.type != "cpu" or trainer.config.compile:
        return None
    try:
        network = copy.deepcopy(trainer.network)
        for module in network.modules():  # a hook of a callback must not see blank items
            module._forward_hooks.clear()
            module._forward_pre_hooks.clear()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            forward(trainer, network, network, 2)  # the first pass is slower
            clock = [time.perf_counter()]
            for _ in range(3):
                forward(trainer, network, network, TIMED_ITEMS)
                clock.append(time.perf_counter())
    except Exception:  # a module of the user's that cannot be copied, or takes batches of one size only
        return None
    seconds = median(end - begin for begin, end in pairwise(clock))
    return STEP_COST * seconds * trainer.recipe.batch_size / TIMED_ITEMS


def trial_step(trainer: Trainer, model: nn.Module) -> None:
    """Run forward and backward once for each batch size of an epoch; leave the network unchanged."""
    network, batches = trainer.network, trainer.batches
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]
    parts = [batches.positions(step) for step in (0, len(batches) - 1)]
    counts = {part.stop - part.start for part in parts} - {0}
    for size in {s.stop - s.start for count in counts for s in slices(count, trainer.recipe.accumulate)}:
        forward(trainer, model, network, size).float().sum().backward()  # type: ignore[no-untyped-call]
    network.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, kept in buffers:
            buffer.copy_(kept)


def forward(trainer: Trainer, model: nn.Module, network: nn.Module, count: int) -> Tensor:
    """Return the outputs for `count` blank items; `model` is the network as compiled."""
    trainer.set_training_mode(model, network)
    inputs = blank_batch(trainer, count).to(next(network.parameters()).device)
    options = drawn_options(network, trainer.config.seed, 0, range(count))
    options |= {} if trainer.recipe.running_cost == "weight_decay" else {"cost": KineticCost()}
    with trainer.accelerator.autocast():
        outputs: Tensor = model(inputs, **options)
    return outputs


def blank_batch(trainer: Trainer, count: int) -> Tensor:
    """Return a batch of black images, or of copies of the first item where items are not images."""
    source = trainer.data.train
    if len(source.shape) == 3:
        height, width, channels = source.shape
        return torch.zeros(count, channels, height, width).contiguous(memory_format=torch.channels_last)
    request = Request(np.zeros(count, np.intp), None)
    return next(iter(source.read([request], trainer.data.normalise)))[0]


def slices(count: int, parts: int) -> list[slice]:
    """Split `count` items into at most `parts` slices of nearly equal size."""
    number = max(1, min(count, parts))
    return [slice(count * n // number, count * (n + 1) // number) for n in range(number)]
