"""Build the objects of a run from its config, and resume them from its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor, nn

from stepnet.data import Data, evaluation_batches, training_batches
from stepnet.data import fingerprint as data_fingerprint
from stepnet.errors import UserError
from stepnet.exchange import resumed_weights
from stepnet.nets import takes_cost
from stepnet.schemes import Scheme, get_scheme
from stepnet.tensors import read_tensors
from stepnet.training import checkpoint
from stepnet.training.build import build_network, build_optimizer
from stepnet.training.callbacks import Callback, CallbackList, recipe_callbacks
from stepnet.training.checkpoint import Progress
from stepnet.training.config import TrainConfig
from stepnet.training.describe import describe_run, network_fingerprint, network_record, weights_fingerprint
from stepnet.training.levels import Level
from stepnet.training.machine import check_precision, check_without_float64, compiled_or_eager, keep_memory
from stepnet.training.mixing import BatchMixing
from stepnet.training.processes import Processes
from stepnet.training.run import EpochMetrics, Run, import_modules, remember_imports
from stepnet.training.scores import EpochScores
from stepnet.training.tasks import TASKS, Task
from stepnet.training.trial import check_forward, trial_step


class Trainer:
    """The objects of a run: data, network, optimiser, folder, progress.

    `network` and `optimizer` are plain torch objects. `model` is the network as compiled and distributed for training
    steps, `stepper` the optimiser as Accelerate wraps it.
    """

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
        self.callbacks = CallbackList([*recipe_callbacks(config.recipe), *callbacks])
        check_precision(config.precision)
        import_modules(config.imports)
        self.processes = Processes(config)
        self.accelerator = self.processes.accelerator
        if self.processes.device.type == "cpu" and config.memory in (None, "stored"):
            keep_memory()
        self.callbacks.note(f"{'' if data else f'reading {config.data}, '}building the network")
        self.whole_data: Data = data or config.read_data()
        self.data = self.whole_data if config.holdout is None else self.whole_data.hold_out(config.holdout)
        self.task: Task = TASKS[task or (config.task.name if config.task else self.data.task)](self.data)
        self.recipe = config.recipe.sized(len(self.data.train))
        self.config = config = replace(config, task=self.task.record, recipe=self.recipe)
        initial = self._initial_config()
        self.user_network = network is not None
        self.level = level
        self.network = self.place(network or build_network(level.config(initial) if level else initial, self.data))
        if self.recipe.running_cost != "weight_decay" and not takes_cost(self.network):
            raise UserError(
                f"running_cost = {self.recipe.running_cost!r}: {config.model} does not sum the f(X_n) of its steps; "
                "use 'weight_decay'"
            )
        if self.recipe.class_weights == "balanced" and not self.task.of_classes:
            raise UserError(f"class_weights = 'balanced' is for classes, not for the task {self.task.name!r}")
        self.mix = BatchMixing.of(self.recipe, self.data)
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
        check_forward(self)
        evaluated_at_once = (config.eval_batch_size or self.recipe.batch_size) * count
        self.tests = evaluation_batches(self.data, evaluated_at_once, rank=rank, world_size=count)
        self.validation = (
            None
            if self.data.validation is None
            else replace(self.tests, source=self.data.validation)  # each item once, without augmentation
        )
        self.description = describe_run(config, self.data, self.network)
        self.run = Run(Path(config.out))
        has_checkpoint = self.processes.on_main(lambda: self._open(resume, overwrite))
        self.progress, self.callback_states = Progress(), dict[str, Tensor]()
        if has_checkpoint:
            try:
                self.progress, self.callback_states = checkpoint.load(self.run.last, self.network, self.optimizer)
                self._check_position()
                self.processes.on_main(lambda: self.run.kept_metrics(self.progress))
            except UserError as error:
                raise UserError(f"{error}; restore the file, or start the run anew with --overwrite") from None
        if initial != config and not has_checkpoint:  # the checkpoint belonged to a run that was replaced
            first = level.config(config) if level else config
            self.network.load_state_dict(build_network(first, self.data).state_dict())
        self.evaluated = self.network  # evaluated and saved; a callback may set an average of the weights instead
        self.scores = EpochScores(self.progress, self.processes)
        self.compiler_cache = ExitStack()
        model = (
            compiled_or_eager(self.network, partial(trial_step, self), self.callbacks.note, self.compiler_cache)
            if config.compile
            else self.network
        )
        self.model, self.stepper = self.processes.prepare(model, self.network, self.optimizer)

    def _initial_config(self) -> TrainConfig:
        """Return the config to build the network from, without initial weights where a checkpoint will replace them."""
        resumed = Run(Path(self.config.out)).last.exists()
        return replace(self.config, pretrained=False, weights=None) if resumed else self.config

    def place(self, network: nn.Module) -> nn.Module:
        """Move a network to the run's device and memory layout; one to be sharded stays on the CPU."""
        if self.config.sync_bn and self.processes.device.type == "cpu":
            raise UserError("--sync-bn: torch's synchronised batch norm is for GPUs, and this run is on a CPU")
        if self.processes.device.type == "mps":
            check_without_float64(network)
        layout = torch.channels_last if self.config.channels_last else torch.contiguous_format
        device = "cpu" if self.processes.is_sharded else self.processes.device
        return network.to(device).to(memory_format=layout)  # type: ignore[call-overload, no-any-return]

    def _open(self, resume: bool, overwrite: bool) -> bool:
        """Lock the run's folder, write its config, and return whether it has a checkpoint."""
        identified = replace(
            self.config,
            data_fingerprint=data_fingerprint(self.data),
            network_fingerprint=self._network_fingerprint() if self.user_network else None,
            weights_fingerprint=weights_fingerprint(self.config.weights),
            network=network_record(self.network, self.data, self.scheme),
        )
        self.lock = self.run.open(identified, resume, overwrite)
        remember_imports(self.run, self.config.imports)
        return self.run.last.exists()

    def _network_fingerprint(self) -> str | None:
        """Fingerprint the user's network; one that has the checkpoint's weights keeps the fingerprint of its run."""
        fingerprint = network_fingerprint(self.network.state_dict())
        with suppress(UserError):  # no checkpoint, or a damaged one
            if fingerprint == network_fingerprint(resumed_weights(read_tensors(self.run.last)[0])):
                return self.run.config.network_fingerprint
        return fingerprint

    def _check_position(self) -> None:
        """Raise for a checkpoint whose position is outside the recipe's epochs or the data."""
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

    @property
    def scheme(self) -> Scheme | None:
        """The scheme that steps the blocks; None if the network has none."""
        scheme = getattr(self.network, "scheme", None)
        return scheme if isinstance(scheme, Scheme) else get_scheme(self.config.scheme) if self.config.scheme else None

    @property
    def is_done(self) -> bool:
        """Whether the run, or the current level of a multilevel run, has no epochs left."""
        end = self.level.end if self.level else self.recipe.epochs
        return self.progress.epoch >= end or self.progress.stopped

    @property
    def is_complete(self) -> bool:
        """Whether the whole run is finished."""
        return self.is_done and (self.level is None or self.level.full or self.progress.stopped)

    def stop(self) -> None:
        """End the run after the current epoch. Called by callbacks."""
        self.progress.stopped = True

    def start_callbacks(self) -> None:
        """Call `start` of each callback, then load its state from the checkpoint."""
        self.callbacks.start(self)
        self.callbacks.load_state_dict(self.callback_states)
        known = {name.partition(".")[0] for name in self.callbacks.state_dict()}
        saved = {name.partition(".")[0] for name in self.callback_states}
        if self.progress != Progress() and known != saved:
            name = sorted(known ^ saved)[0]
            where = f"{self.run.last} was saved {'without' if name in known else 'with'} the callback {name}"
            raise UserError(f"{where}: resume with the same callbacks, or name another --out")

    def learning_rate(self, epoch: int, step: int) -> float:
        """Return the learning rate of a step."""
        return self.recipe.learning_rate(epoch + step / len(self.batches))

    def set_training_mode(self, model: nn.Module, network: nn.Module | None = None) -> None:
        """Set training mode; with `freeze_bn`, batch norm layers stay in evaluation mode."""
        network = network or self.network
        model.train()
        network.train()
        if self.config.freeze_bn:
            for module in network.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()

    def record_start(self) -> None:
        """Record the environment, drop the metrics of epochs that will run again, and start the trackers."""
        self.run.record_environment()
        self.run.cut_metrics(self.progress)
        if self.config.log != "none":
            options = {"tensorboard": {"purge_step": self.progress.epoch}, "wandb": {"name": self.run.folder.name}}
            project = "tensorboard" if self.config.log == "tensorboard" else "stepnet"
            self.accelerator.init_trackers(project, init_kwargs=options)

    def log(self, line: EpochMetrics) -> None:
        """Send an epoch's metrics to TensorBoard or W&B, if the run logs there."""
        if self.config.log != "none":
            values = {k: v for k, v in line.items() if isinstance(v, float)}
            values |= {f"k/{layer}": k for layer, k in line["k"].items() if isinstance(k, float)}
            self.accelerator.log(values, step=line["epoch"])

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Release the model and unlock the run's folder.

        DistributedDataParallel must be freed before its process group (`leave_group_at_exit`). If it held the last
        reference to the group, the group's threads would be joined while Python's lock is held, and one of them may be
        waiting for that lock: a deadlock, now and then.
        """
        self.model = self.stepper = None
        self.compiler_cache.close()
        self.accelerator.free_memory()
        for tracker in self.accelerator.trackers:
            tracker.finish()
        if self.processes.is_main:
            self.lock.close()
