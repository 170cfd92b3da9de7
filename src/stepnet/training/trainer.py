"""The parts of a run under way: network, optimiser, batches, folder, and its position."""

from __future__ import annotations

import copy
import time
import zlib
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from torch import Tensor, nn

from stepnet.data import Data, Request, Text, evaluation_batches, training_batches
from stepnet.data import fingerprint as data_fingerprint
from stepnet.errors import UserError, first_line
from stepnet.exchange import read_model, resumed_weights
from stepnet.nets import KineticCost, drawn_options, profile, takes_cost
from stepnet.schemes import Scheme, get_scheme
from stepnet.tensors import Tensors, checksum, read_tensors
from stepnet.training import checkpoint
from stepnet.training.build import build_network, build_optimizer
from stepnet.training.callbacks import Callback, CallbackList, EarlyStopping, WeightAverage
from stepnet.training.checkpoint import Progress
from stepnet.training.config import NetworkRecord, TrainConfig
from stepnet.training.describe import describe_run
from stepnet.training.imports import import_modules, remember_imports
from stepnet.training.levels import Level
from stepnet.training.machine import check_precision, compiled_or_eager, keep_memory
from stepnet.training.mixing import BatchMixing
from stepnet.training.notebook import duration
from stepnet.training.processes import Processes
from stepnet.training.recipes import recipe_words
from stepnet.training.run import EpochMetrics, Run
from stepnet.training.scores import EpochScores
from stepnet.training.tasks import TASKS, Task

LONG_EPOCH = 60.0  # seconds
FEW_STEPS = 10  # in an epoch
TRIED = 8  # items, in a step by which the time of an epoch is estimated


class Trainer:
    """What the loop works on. `network` is the module, `model` is it as compiled and distributed for training steps."""

    def __init__(
        self,
        config: TrainConfig,
        resume: bool,
        overwrite: bool = False,
        network: nn.Module | None = None,
        data: Data | None = None,
        callbacks: Sequence[Callback] = (),
        task: str | None = None,
        level: Level | None = None,
    ) -> None:
        asked: list[Callback] = [] if config.recipe.ema is None else [WeightAverage(config.recipe.ema)]
        asked += [] if config.recipe.patience is None else [EarlyStopping(config.recipe.patience)]
        self.callbacks = CallbackList([*asked, *callbacks])
        check_precision(config.precision)
        import_modules(config.imports)
        self.processes = Processes(config)
        self.accelerator = self.processes.accelerator
        if self.processes.device.type == "cpu" and config.memory in (None, "stored"):
            keep_memory()
        self.callbacks.note(f"{'' if data else f'reading {config.data}, '}building the network")
        self.data: Data = data or config.read_data()
        if config.holdout is not None:
            self.data = self.data.hold_out(config.holdout)
        self.task: Task = TASKS[task or (config.task.name if config.task else self.data.task)](self.data)
        self.recipe = config.recipe.sized(len(self.data.train))
        self.config = config = replace(config, task=self.task.record, recipe=self.recipe)
        start = self._start()
        self.is_given = network is not None
        self.level = level
        self.network = self.placed(network or build_network(level.config(start) if level else start, self.data))
        if self.recipe.running_cost != "weight_decay" and not takes_cost(self.network):
            raise UserError(
                f"running_cost = {self.recipe.running_cost!r}: {config.model} has no stages whose f(X_n) could be "
                "summed; take 'weight_decay'"
            )
        self.optimizer = build_optimizer(self.recipe, self.network)
        rank, count = self.processes.rank, self.processes.count
        self.batches = training_batches(
            self.data,
            self.recipe.batch_size,
            seed=config.seed,
            rank=rank,
            world_size=count,
            most_steps=self.recipe.epoch_steps,
        )
        self.epoch_seconds = 0.0  # about, where an epoch takes long
        self._check_forward()
        self.tests = evaluation_batches(self.data, config.evaluation_batch * count, rank=rank, world_size=count)
        self.validation = (
            None
            if self.data.validation is None
            else replace(self.tests, source=self.data.validation)  # every item once and as it is
        )
        self.description = describe_run(config, self.data, self.network)
        self.run = Run(Path(config.out))
        found = self.processes.on_main(lambda: self._open(resume, overwrite))
        self.progress, self.callback_states = Progress(), dict[str, Tensor]()
        if found:
            self.progress, self.callback_states = checkpoint.load(self.run.last, self.network, self.optimizer)
        if start != config and not found:  # the checkpoint is gone: it was of a run that this one replaces
            first = level.config(config) if level else config
            self.network.load_state_dict(build_network(first, self.data).state_dict())
        self._check_position()
        self.mix = BatchMixing.of(self.recipe, self.data)
        self.evaluated = self.network  # what is evaluated and written: a callback may put an average in its place
        self.scores = EpochScores(self.progress, self.processes)
        self.held_open = ExitStack()
        model = (
            compiled_or_eager(self.network, self._trial, self.callbacks.note, self.held_open)
            if config.compile
            else self.network
        )
        self.model, self.stepper = self.accelerator.prepare(model, self.optimizer)

    def _check_forward(self) -> None:
        """Pass the smallest batch of an epoch through a copy of the network, before anything is written.

        Of a short last batch a process may get one image, which batch norm refuses; and images may be too small.
        """
        count = self.processes.count
        parts = [replace(self.batches, rank=rank).positions(len(self.batches) - 1) for rank in range(count)]
        sizes = [part.stop - part.start for part in parts if part.stop > part.start]
        smallest = min((size // min(size, self.recipe.accumulate) for size in sizes), default=2)
        try:
            network = copy.deepcopy(self.network)
        except Exception:  # a module of the user's that cannot be copied
            return
        items, size = self.task.items, "x".join(map(str, self.data.train.shape))
        began = time.perf_counter()
        for number in (2, *([1] if smallest == 1 else [])):
            try:
                with torch.no_grad(), torch.random.fork_rng(devices=[]):
                    outputs = self._forward(network, network, number)
            except (RuntimeError, ValueError, IndexError) as error:
                if number == 1:
                    what = f"batches of {self.recipe.batch_size} leave one of {len(self.data.train):,} {items} alone"
                    advice = f"({first_line(error)[:60]}): take another --batch-size, or --freeze-bn"
                    raise UserError(f"{what}, on which {self.config.model} cannot train {advice}") from error
                what = f"{self.config.model} cannot be trained on {items} of {size}: {first_line(error)}"
                raise UserError(f"{what}; take larger {items} or another network") from error
            if not isinstance(outputs, Tensor):
                raise UserError(f"{self.config.model} gives a {type(outputs).__name__}: expected a tensor")
            try:
                self.task.check_outputs(outputs)
            except UserError as error:
                raise UserError(f"{self.config.model}: {error}") from None
        if self._scaled(3 * (time.perf_counter() - began), 2) > LONG_EPOCH and self.processes.device.type == "cpu":
            self.epoch_seconds = self._estimated_seconds(network)

    def _scaled(self, seconds: float, items: int) -> float:
        """What takes so long for some items, for this process's part of an epoch."""
        return seconds / items * len(self.data.train) / self.processes.count

    def _estimated_seconds(self, network: nn.Module) -> float:
        """About how long an epoch of training steps takes, from a step of a few items on a copy of the network."""
        spent = []
        for _ in range(2):  # the first one also prepares what every later one uses
            began = time.perf_counter()
            with torch.random.fork_rng(devices=[]), suppress(RuntimeError):
                self._forward(network, network, TRIED).float().sum().backward()  # type: ignore[no-untyped-call]
            spent.append(time.perf_counter() - began)
        return self._scaled(min(spent), TRIED)

    def _forward(self, model: nn.Module, network: nn.Module, count: int) -> Tensor:
        """The outputs for so many blank items; `model` is the network as compiled."""
        self.training_mode(model, network)
        inputs = self._blank(count).to(self.processes.device)
        options = drawn_options(network, self.config.seed, 0, range(count))
        options |= {} if self.recipe.running_cost == "weight_decay" else {"cost": KineticCost()}
        with self.accelerator.autocast():
            outputs: Tensor = model(inputs, **options)
        return outputs

    def _blank(self, count: int) -> Tensor:
        """A batch of black images, or of the first item where items are something else."""
        shape = self.data.train.shape
        if len(shape) == 3:
            height, width, channels = shape
            return torch.zeros(count, channels, height, width).contiguous(memory_format=torch.channels_last)
        request = Request(np.zeros(count, np.intp), None)
        return next(iter(self.data.train.read([request], self.data.normalise)))[0]

    def _trial(self, model: nn.Module) -> None:
        """A step forward and back for each size of batch; the network comes out as it went in."""
        buffers = [(buffer, buffer.clone()) for buffer in self.network.buffers()]
        parts = [self.batches.positions(step) for step in (0, len(self.batches) - 1)]
        counts = {part.stop - part.start for part in parts} - {0}
        for size in {s.stop - s.start for count in counts for s in slices(count, self.recipe.accumulate)}:
            self._forward(model, self.network, size).float().sum().backward()  # type: ignore[no-untyped-call]
        self.network.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, kept in buffers:
                buffer.copy_(kept)

    def _start(self) -> TrainConfig:
        """What the network is built by: one that a checkpoint will fill does not look for what it began with."""
        begun = Run(Path(self.config.out)).last.exists()
        return replace(self.config, pretrained=False, weights=None) if begun else self.config

    def placed(self, network: nn.Module) -> nn.Module:
        """The network on the run's device, in its memory layout."""
        if self.config.sync_bn and self.processes.device.type == "cpu":
            raise UserError("--sync-bn: torch's synchronised batch norm is for GPUs, and this run is on a CPU")
        layout = torch.channels_last if self.config.channels_last else torch.contiguous_format
        return network.to(self.processes.device).to(memory_format=layout)  # type: ignore[call-overload, no-any-return]

    def _open(self, resume: bool, overwrite: bool) -> bool:
        """Lock the run's folder; whether there is a checkpoint in it to resume."""
        identified = replace(
            self.config,
            data_fingerprint=data_fingerprint(self.data),
            network_fingerprint=self._network_fingerprint() if self.is_given else None,
            weights_fingerprint=weights_fingerprint(self.config.weights),
            network=self._network_record(),
        )
        self.held = self.run.open(identified, resume, overwrite)
        remember_imports(self.run, self.config.imports)
        return self.run.last.exists()

    def _network_record(self) -> NetworkRecord:
        """What a report says of the network, without building it again."""
        parameters = sum(parameter.numel() for parameter in self.network.parameters())
        record = NetworkRecord(parameters, scheme=self.scheme.name if self.scheme else None)
        with suppress(Exception):  # networks of others may not run without numbers, or cannot be copied
            data = self.data
            size = (1, data.train.context) if isinstance(data.train, Text) else (data.in_channels, data.image_size)
            found = profile(copy.deepcopy(self.network).to("meta"), *size)
            record = replace(record, multiply_adds=found.multiply_adds, steps=found.steps, own_steps=found.own_steps)
        return record

    def _network_fingerprint(self) -> str | None:
        """Of a network that was given. One with the weights of this run's checkpoint is the run's own."""
        given = network_fingerprint(self.network.state_dict())
        with suppress(UserError):  # no checkpoint, or a damaged one
            if given == network_fingerprint(resumed_weights(read_tensors(self.run.last)[0])):
                return self.run.config.network_fingerprint
        return given

    def _check_position(self) -> None:
        """Refuse a position that the recipe and the data do not have."""
        p, steps = self.progress, len(self.batches)
        items = min(p.step * self.recipe.batch_size, len(self.data.train))
        if (
            p.epoch > self.recipe.epochs
            or p.step > steps
            or p.seen > items
            or (p.step and not p.seen)
            or (p.sums and not p.seen)
        ):
            raise UserError(
                f"{self.run.last} is damaged: it stands at epoch {p.epoch}, step {p.step}, item {p.seen}, "
                f"of {self.recipe.epochs} epochs with {steps} steps"
            )

    def summary(self) -> list[str]:
        """What the run is, for a person, in lines of at most 80 columns as far as names allow."""
        config, recipe, p = self.config, self.recipe, self.processes
        scheme = f":{config.scheme}" if config.scheme else ""
        options = "".join(f", {name}={value}" for name, value in config.model_kwargs.items())
        parameters = sum(parameter.numel() for parameter in self.network.parameters())
        size = "x".join(map(str, self.data.train.shape))
        items = f"{len(self.data.train):,} + {len(self.data.test):,} {self.task.items} {size}"
        in_python = config.data.startswith(f"{self.data.name} of ")  # whose name says what comes next
        targets = f"{self.data.num_classes} classes" if self.data.num_classes else self.task.name
        name, *changes = recipe_words(recipe).split(", ")
        pace = f"{recipe.epochs} epochs of {len(self.batches)} steps, batch {recipe.batch_size}"
        device = torch.cuda.get_device_name() if p.device.type == "cuda" else "cpu"
        threads = f"{p.count} process(es), {torch.get_num_threads()} thread(s)"
        compiled = ", compiled" if config.compile else ""
        modes = [m for module in self.network.modules() if (m := getattr(module, "memory_in_use", None))]
        same = f"{modes[0]} in every stage" if len(set(modes)) == 1 else ", ".join(modes)
        return [
            f"model   {config.model}{scheme}{options}: {parameters:,} parameters",
            f"data    {self.data.name if in_python else config.data}: {items}, {targets}",
            f"recipe  {name}{', changed' if changes else ''}: {pace}, lr {recipe.lr:g} {recipe.schedule}",
            *([f"        {self._few_steps()}"] if len(self.batches) < FEW_STEPS and recipe.min_steps is None else []),
            f"device  {device}, {threads}, {config.precision}{compiled}",
            *([f"memory  {config.memory}: {same}"] if config.memory else []),
            *([f"time    {self._about_time()}"] if self.epoch_seconds else []),
            *(
                [f"levels  depths {', '.join(map(str, recipe.levels))}, each refined into the next"]
                * bool(recipe.levels)
            ),
            f"folder  {self.run.folder}",
        ]

    def _few_steps(self) -> str:
        """A network learns by steps, not by epochs."""
        count, items = len(self.data.train), self.task.items
        smaller = max(2, count // (2 * FEW_STEPS))
        photos = ", or --recipe photos" if self.task.of_classes else ""
        return f"few steps: {count:,} {items}; try --batch-size {smaller}{photos}"

    def _about_time(self) -> str:
        """From a few items alone: a first step that takes minutes should not be waited for in the dark."""
        step, epoch = (duration(self.epoch_seconds / n) for n in (len(self.batches), 1))
        whole = duration(self.epoch_seconds * self.recipe.epochs)
        return f"about {step} a step, {epoch} an epoch, {whole} in all"

    @property
    def scheme(self) -> Scheme | None:
        """That marches the blocks, where it is known."""
        own = getattr(self.network, "scheme", None)
        return own if isinstance(own, Scheme) else get_scheme(self.config.scheme) if self.config.scheme else None

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to train, of the run or of its level."""
        end = self.level.end if self.level else self.recipe.epochs
        return self.progress.epoch >= end or self.progress.stopped

    @property
    def is_complete(self) -> bool:
        """Whether the whole run is done."""
        return self.is_done and (self.level is None or self.level.full or self.progress.stopped)

    def stop(self) -> None:
        """End the run after the epoch under way: for callbacks."""
        self.progress.stopped = True

    def start_callbacks(self) -> None:
        """Tell the callbacks, and give back to each what the checkpoint holds of it."""
        self.callbacks.start(self)
        self.callbacks.load_state_dict(self.callback_states)
        known = {name.partition(".")[0] for name in self.callbacks.state_dict()}
        saved = {name.partition(".")[0] for name in self.callback_states}
        if self.progress != Progress() and known != saved:
            one = sorted(known ^ saved)[0]
            where = f"{self.run.last} was saved {'without' if one in known else 'with'} the callback {one}"
            raise UserError(f"{where}: resume with the callbacks that the run began with, or name another --out")

    def learning_rate(self, epoch: int, step: int) -> float:
        """The learning rate of a step."""
        return self.recipe.learning_rate(epoch + step / len(self.batches))

    def training_mode(self, model: nn.Module, network: nn.Module | None = None) -> None:
        """Batch norm by the batch, unless the run keeps its statistics."""
        network = network or self.network
        model.train()
        network.train()
        if self.config.freeze_bn:
            for module in network.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()

    def record_start(self) -> None:
        """Write down on what the run goes on; forget lines and events of epochs that are run again."""
        self.run.record_environment()
        self.run.cut_metrics(self.progress)
        if self.config.log != "none":
            options = {"tensorboard": {"purge_step": self.progress.epoch}, "wandb": {"name": self.run.folder.name}}
            project = "tensorboard" if self.config.log == "tensorboard" else "stepnet"
            self.accelerator.init_trackers(project, init_kwargs=options)

    def log(self, line: EpochMetrics) -> None:
        """Send an epoch's line to where else the run is logged."""
        if self.config.log != "none":
            values = {k: v for k, v in line.items() if isinstance(v, float)}
            values |= {f"k/{layer}": k for layer, k in line["k"].items() if isinstance(k, float)}
            self.accelerator.log(values, step=line["epoch"])

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let go of the network and of the folder.

        DistributedDataParallel goes before its process group (`leave_group_at_exit`). If it held the last reference to
        the group, the group's threads would be joined under Python's lock, for which one of them may be waiting: now
        and then a process never ended.
        """
        self.model = self.stepper = None
        self.held_open.close()
        self.accelerator.free_memory()
        for tracker in self.accelerator.trackers:
            tracker.finish()
        if self.processes.is_main:
            self.held.close()


def weights_fingerprint(place: str | None) -> str | None:
    """Of the weights in a file or run, if it is there; a checkpoint does without."""
    if place is None or not Path(place).exists():
        return None
    with suppress(UserError):
        return network_fingerprint(read_model(place).weights)
    return None


def network_fingerprint(weights: Tensors) -> str:
    """`12 tensors, 578 numbers, names and shapes 1a2b3c4d, weights 5e6f7a8b`: tells two networks of a class apart."""
    shapes = "".join(f"{name} {list(tensor.shape)} {tensor.dtype}\n" for name, tensor in sorted(weights.items()))
    numbers = sum(tensor.numel() for tensor in weights.values())
    contents = f"names and shapes {zlib.crc32(shapes.encode()):08x}, weights {checksum(weights):08x}"
    return f"{len(weights)} tensors, {numbers:,} numbers, {contents}"


def slices(count: int, most: int) -> list[slice]:
    """So many items in parts of nearly equal size, `most` of them or one for each item."""
    number = max(1, min(count, most))
    return [slice(count * n // number, count * (n + 1) // number) for n in range(number)]
