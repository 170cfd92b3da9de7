"""Descriptions of a run: for its files, for its config, and for the terminal when it starts."""

from __future__ import annotations

import copy
import zlib
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from stepnet.data import Data, Text
from stepnet.errors import UserError, counted
from stepnet.exchange import ModelDescription, TrainingRecord, describe_network, preprocessing_of, read_model
from stepnet.nets import profile
from stepnet.schemes import Scheme
from stepnet.tensors import Tensors, checksum
from stepnet.training.config import NetworkRecord, TrainConfig
from stepnet.training.recipes import recipe_words
from stepnet.training.run import EpochMetrics, environment
from stepnet.training.sharding import coefficients_of
from stepnet.training.tasks import TaskRecord

if TYPE_CHECKING:
    from stepnet.training.trainer import Trainer

FEW_STEPS = 10  # in an epoch


def describe_run(config: TrainConfig, data: Data, network: nn.Module) -> ModelDescription:
    """Return the description of a run's network before training."""
    here = environment()
    training = TrainingRecord(
        data=config.data,
        val_share=config.val_share,
        task=config.task.name if config.task else TaskRecord().name,
        epochs=0,
        recipe=asdict(config.recipe),
        seed=config.seed,
        command=here["command"],
        revision=here["revision"],
    )
    return describe_network(network, data.train.classes, preprocessing_of(data), training)


def describe_progress(
    start: ModelDescription, network: nn.Module, epochs: int, line: EpochMetrics | None = None
) -> ModelDescription:
    """Return the description after `epochs` epochs, with the test metrics of `line` if they are of these weights."""
    assert start.training is not None
    tested = {name.removeprefix("test_"): value for name, value in (line or {}).items() if name.startswith("test_")}
    training = replace(
        start.training,
        epochs=epochs,
        test_error=tested.pop("error", None),
        top5_error=tested.pop("top5_error", None),
        tested=tested,
    )
    return replace(start, training=training, k=coefficients_of(network))


def network_record(network: nn.Module, data: Data, scheme: Scheme | None) -> NetworkRecord:
    """Count the parameters and multiply-adds of a network, so that a report need not build it."""
    parameters = sum(parameter.numel() for parameter in network.parameters())
    record = NetworkRecord(parameters, scheme=scheme.name if scheme else None)
    with suppress(Exception):  # a foreign network may not run on the meta device, or cannot be copied
        size = (1, data.train.context) if isinstance(data.train, Text) else (data.in_channels, data.image_size)
        cost = profile(copy.deepcopy(network).to("meta"), *size)
        record = replace(record, multiply_adds=cost.multiply_adds, steps=cost.steps, own_steps=cost.own_steps)
    return record


def network_fingerprint(weights: Tensors) -> str:
    """Identify weights: `12 tensors, 578 numbers, names and shapes 1a2b3c4d, weights 5e6f7a8b`."""
    shapes = "".join(f"{name} {list(tensor.shape)} {tensor.dtype}\n" for name, tensor in sorted(weights.items()))
    numbers = sum(tensor.numel() for tensor in weights.values())
    contents = f"names and shapes {zlib.crc32(shapes.encode()):08x}, weights {checksum(weights):08x}"
    return f"{len(weights)} tensors, {numbers:,} numbers, {contents}"


def weights_fingerprint(place: str | None) -> str | None:
    """Identify the weights in a file or run; None if it does not exist, as when a checkpoint replaces them."""
    if place is None or not Path(place).exists():
        return None
    with suppress(UserError):
        return network_fingerprint(read_model(place).weights)
    return None


def run_summary(trainer: Trainer) -> list[str]:
    """Summarise a run in lines of at most 80 columns, unless names are long."""
    config, recipe, data, processes = trainer.config, trainer.recipe, trainer.data, trainer.processes
    scheme = f":{config.scheme}" if config.scheme else ""
    options = "".join(f", {name}={value}" for name, value in config.model_kwargs.items())
    parameters = sum(parameter.numel() for parameter in trainer.network.parameters())
    text = isinstance(data.train, Text)
    size = ("of " if text else "") + "x".join(map(str, data.train.shape))
    items = f"{len(data.train):,} + {len(data.test):,} {trainer.task.items} {size}"
    from_python = config.data.startswith(f"{data.name} of ")  # its name in the config repeats the sizes
    targets = f"{data.num_classes} {'tokens' if text else 'classes'}" if data.num_classes else trainer.task.name
    name, *changes = recipe_words(recipe).split(", ")
    steps = len(trainer.batches)
    few = steps < FEW_STEPS and recipe.min_steps is None and steps != recipe.epoch_steps  # unless they were chosen
    pace = f"{counted(recipe.epochs, 'epoch')} of {counted(steps, 'step')}, batch {recipe.batch_size}"
    device = torch.cuda.get_device_name() if processes.device.type == "cuda" else processes.device.type
    threads = f"{counted(processes.count, 'process', 'es')}, {counted(torch.get_num_threads(), 'thread')}"
    compiled = ", compiled" if config.compile else ""
    modes = [mode for module in trainer.network.modules() if (mode := getattr(module, "memory_in_use", None))]
    stages = f"{modes[0]} in every stage" if len(set(modes)) == 1 else ", ".join(modes)
    depth = f" at depth {trainer.level.depth}" if trainer.level else ""
    levels = f"depths {', '.join(map(str, recipe.levels))}, each refined into the next"
    return [
        f"model   {config.model}{scheme}{options}: {parameters:,} parameters{depth}",
        f"data    {data.name if from_python else config.data}: {items}, {targets}",
        f"recipe  {name}{', changed' if changes else ''}: {pace}, lr {recipe.lr:g} {recipe.schedule}",
        *([f"        {_few_steps(trainer)}"] if few else []),
        f"device  {device}, {threads}, {config.precision}{compiled}",
        *([f"memory  {config.memory}: {stages}"] if config.memory else []),
        *([f"levels  {levels}"] if recipe.levels else []),
        f"folder  {trainer.run.folder}",
    ]


def _few_steps(trainer: Trainer) -> str:
    """Suggest more steps: a network learns by steps, not by epochs."""
    count, items = len(trainer.data.train), trainer.task.items
    smaller = max(2, count // (2 * FEW_STEPS))
    known = trainer.task.of_classes and not recipe_words(trainer.recipe).startswith("photos")
    photos = ", or the recipe photos" if known else ""
    return f"few steps: {count:,} {items}; try a batch size of {smaller}{photos}"
