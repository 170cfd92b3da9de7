"""The training loop, top to bottom: read a batch, step, save; evaluate and write a line at the end of each epoch.

All randomness is a function of (seed, epoch, step): data order and augmentation by `stepnet.data`, gates and noise by
a seed set before each step. A checkpoint therefore holds weights, momentum and a position, and a resumed run goes on
to the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import Tensor, nn

from stepnet.data import evaluation_batches, get_data, training_batches
from stepnet.errors import UserError
from stepnet.nets import coefficients
from stepnet.nets.compiled import compiled
from stepnet.nets.cost import KineticCost, takes_cost
from stepnet.nets.draws import drawn_options
from stepnet.nets.residual import vectors
from stepnet.randomness import Stream, random_words
from stepnet.training import checkpoint
from stepnet.training.build import build_network
from stepnet.training.checkpoint import Progress
from stepnet.training.config import TrainConfig
from stepnet.training.precision import check_precision
from stepnet.training.rendezvous import meet_anew, part_at_exit
from stepnet.training.run import Run
from stepnet.training.signals import Asked, Interrupted, stop_signals

T = TypeVar("T")


class Watcher:
    """Told of every step and epoch; the command line's progress bar is one."""

    def start(self, config: TrainConfig, steps_per_epoch: int, progress: Progress) -> None:
        """The run begins, or goes on from `progress`."""

    def step(self, progress: Progress, images_per_second: float) -> None:
        """A step is done."""

    def epoch(self, line: dict[str, Any]) -> None:
        """An epoch is done; `line` is its line of metrics.jsonl."""


def train(config: TrainConfig, resume: bool = True, watcher: Watcher | None = None) -> Run:
    """Train one network, from the beginning or from where its folder stands."""
    with stop_signals() as asked:
        trainer = Trainer(config, resume, watcher or Watcher(), asked)
        try:
            return trainer.fit()
        finally:
            trainer.close()


class Trainer:
    """One run under way."""

    def __init__(self, config: TrainConfig, resume: bool, watcher: Watcher, asked: Asked) -> None:
        check_precision(config.precision)
        self.config, self.recipe, self.watcher, self.asked = config, config.recipe, watcher, asked
        meet_anew()
        part_at_exit()
        self.accelerator = Accelerator(
            cpu=not torch.cuda.is_available(),
            mixed_precision="no" if config.precision == "fp32" else config.precision,
            log_with=None if config.log == "none" else config.log,
            project_dir=config.out,
        )
        self.world = self.accelerator.num_processes
        data = get_data(config.data, config.data_root)
        self.net = self._network(build_network(config, data))
        if self.recipe.running_cost == "kinetic" and not takes_cost(self.net):
            raise UserError(
                f"running_cost = 'kinetic': {config.model} has no stages whose f(X_n) could be summed; "
                "take 'weight_decay'"
            )
        self.optimizer = self._optimizer()
        rank = self.accelerator.process_index
        self.batches = training_batches(
            data, self.recipe.batch_size, seed=config.seed, rank=rank, world_size=self.world
        )
        self.tests = evaluation_batches(data, 500 * self.world, rank=rank, world_size=self.world)
        self.run = Run(Path(config.out))
        found = self._on_main(lambda: self._open(resume))
        self.progress = checkpoint.load(self.run.last, self.net, self.optimizer) if found else Progress()
        self.model, self.stepper = self.accelerator.prepare(
            compiled(self.net) if config.compile else self.net, self.optimizer
        )
        self.saved_at = time.monotonic()

    def _open(self, resume: bool) -> bool:
        """Take the run's folder; whether there is a checkpoint in it to go on from."""
        self.held = self.run.open(self.config, resume)
        return self.run.last.exists()

    def fit(self) -> Run:
        """Epoch after epoch, to the end."""
        self.watcher.start(self.config, len(self.batches), self.progress)
        if self.progress.epoch < self.recipe.epochs:
            self._on_main(self._start)
        while self.progress.epoch < self.recipe.epochs:
            self._epoch()
        self.accelerator.wait_for_everyone()  # a rank that leaves early would tear the connection from the others
        return self.run

    def _start(self) -> None:
        self.run.record_environment()
        self.run.cut_metrics(self.progress.epoch)
        if self.config.log != "none":  # events of epochs that are run again are cut off too
            self.accelerator.init_trackers(
                "tensorboard", init_kwargs={"tensorboard": {"purge_step": self.progress.epoch}}
            )

    def close(self) -> None:
        """Let go of the network and of the folder.

        DistributedDataParallel goes before its process group (`part_at_exit`). If it held the last reference to the
        group, the group's threads would be joined under Python's lock, for which one of them may be waiting: now and
        then a process never ended.
        """
        self.model = self.stepper = None
        self.accelerator.free_memory()
        for tracker in self.accelerator.trackers:
            tracker.finish()
        if self.accelerator.is_main_process:
            self.held.close()

    def _epoch(self) -> None:
        progress, epoch = self.progress, self.progress.epoch
        self._training_mode()
        started = time.perf_counter()  # reading the images counts, writing checkpoints does not
        for images, labels in self.batches.epoch(epoch, progress.step):
            loss, wrong, count = self._step(images, labels)
            seconds = time.perf_counter() - started
            progress.loss_sum += loss
            progress.wrong += wrong
            progress.seen += int(count)
            progress.step += 1
            progress.seconds += seconds
            self.watcher.step(progress, count / seconds)
            self._save_when_due()
            started = time.perf_counter()
        line = self._evaluate_epoch()
        self._on_main(lambda: self._write_epoch(line))
        progress.begin_epoch(epoch + 1)
        self._save()
        self._log(line)
        self.watcher.epoch(line)

    def _step(self, images: Tensor, labels: Tensor) -> list[float]:
        """One step of SGD; the sum of the losses, the errors and the images of the global batch."""
        epoch, step = self.progress.epoch, self.progress.step
        lr = self._learning_rate(epoch, step)
        serial = epoch * len(self.batches) + step
        word = random_words(1, self.config.seed, serial, self.accelerator.process_index, Stream.NOISE)
        torch.manual_seed(int(word[0]))  # for dropout and the like in networks that are not ours
        device = self.accelerator.device
        images, labels = images.to(device), labels.to(device)
        kinetic = KineticCost() if self.recipe.running_cost == "kinetic" else None
        places = self._places(step, len(images))
        noise = drawn_options(self.net, self.config.seed, serial, places)
        logits = self.model(images, **noise, **({} if kinetic is None else {"cost": kinetic}))
        losses = F.cross_entropy(logits.float(), labels, reduction="sum", label_smoothing=self.recipe.label_smoothing)
        loss, wrong, count = self._reduce(_sums(losses.detach(), logits, labels))
        self._check_finite("the loss", loss)
        # Processes average their gradients, so each counts its sum as a share of the mean over the global batch.
        objective = losses
        if kinetic is not None:
            objective = objective + self.recipe.kinetic * len(images) * kinetic.total
        self.accelerator.backward(objective * (self.world / count))
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.stepper.step()
        self.stepper.zero_grad(set_to_none=True)
        return [loss, wrong, count]

    def _evaluate_epoch(self) -> dict[str, Any]:
        progress = self.progress
        test_loss, test_error = self.evaluate()
        self._check_finite("the test loss", test_loss)
        if test_error < progress.best_error:
            progress.best_error, progress.best_epoch = test_error, progress.epoch
        return {
            "epoch": progress.epoch,
            "loss": progress.loss_sum / progress.seen,
            "error": 100 * progress.wrong / progress.seen,
            "test_loss": test_loss,
            "test_error": test_error,
            "lr": self._learning_rate(progress.epoch, len(self.batches) - 1),
            "images_per_second": round(progress.seen / max(progress.seconds, 1e-9), 1),
            "seconds": round(progress.seconds, 3),
            "k": coefficients(self.net),
        }

    def evaluate(self) -> tuple[float, float]:
        """Mean loss and error in per cent over the test set."""
        self.net.eval()
        sums = torch.zeros(3, dtype=torch.float64, device=self.accelerator.device)
        for images, labels in self.tests.epoch():
            self._stop_if_asked()
            with torch.inference_mode(), self.accelerator.autocast():
                sums += evaluate_batch(self.net, images.to(sums.device), labels.to(sums.device))
        loss, wrong, count = self._reduce(sums)
        return loss / count, 100 * wrong / count

    def _check_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            epoch, step = self.progress.epoch, self.progress.step
            kept = f"the last good checkpoint is {self.run.last}" if self.run.last.exists() else "no checkpoint yet"
            lr = self._learning_rate(epoch, step)
            raise UserError(f"{what} is {value} at epoch {epoch}, step {step}, lr {lr:g}: lower --lr; {kept}")

    # -- saving and stopping

    def _write_epoch(self, line: dict[str, Any]) -> None:
        if self.progress.best_epoch == self.progress.epoch:
            checkpoint.save(self.run.best, self.net, None, self.progress, self.config.model)
        self.run.append_metrics(line)

    def _save(self) -> None:
        # A finite loss may have had an infinite gradient: such weights never take the place of good ones.
        for name, value in self.net.state_dict().items():
            self._check_finite(name, float(value.double().abs().sum()))
        self._on_main(
            lambda: checkpoint.save(self.run.last, self.net, self.optimizer, self.progress, self.config.model)
        )
        self.saved_at = time.monotonic()

    def _save_when_due(self) -> None:
        late = time.monotonic() - self.saved_at > 60 * self.config.checkpoint_minutes
        due = self._stop_if_asked(late or self.progress.step % self.config.checkpoint_steps == 0)
        if due:
            self._save()

    def _stop_if_asked(self, due: bool = False) -> bool:
        """Save and stop if any process was asked to; whether a checkpoint is due by any process's clock."""
        number, due_anywhere = self._reduce_max([self.asked.number, due])
        if number:
            self._save()
            raise Interrupted(number, f"saved {self.run.last}; the same command goes on from there")
        return bool(due_anywhere)

    # -- the parts of a run

    def _network(self, network: nn.Module) -> nn.Module:
        if self.config.sync_bn and self.accelerator.device.type == "cpu":
            raise UserError("--sync-bn: torch's synchronised batch norm is for GPUs, and this run is on a CPU")
        layout = torch.channels_last if self.config.channels_last else torch.contiguous_format
        return network.to(self.accelerator.device).to(memory_format=layout)  # type: ignore[call-overload, no-any-return]

    def _optimizer(self) -> torch.optim.SGD:
        recipe = self.recipe
        spared = set() if recipe.decay_vectors else vectors(self.net)
        decayed = [p for n, p in self.net.named_parameters() if n not in spared]
        rest = [p for n, p in self.net.named_parameters() if n in spared]
        groups: list[dict[str, Any]] = [{"params": decayed}]
        if rest:
            groups.append({"params": rest, "weight_decay": 0.0})
        # The running cost R is weight decay or the kinetic cost, one of them.
        decay = recipe.weight_decay if recipe.running_cost == "weight_decay" else 0.0
        return torch.optim.SGD(
            groups, lr=recipe.lr, momentum=recipe.momentum, weight_decay=decay, nesterov=recipe.nesterov
        )

    def _training_mode(self) -> None:
        self.model.train()
        self.net.train()
        if self.config.freeze_bn:
            for module in self.net.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()

    def _learning_rate(self, epoch: int, step: int) -> float:
        return self.recipe.learning_rate(epoch + step / len(self.batches))

    def _places(self, step: int, count: int) -> range:
        """This process's places in the global batch, as many as images of it could be read."""
        first = self.batches.positions(step).start - step * self.batches.batch_size
        return range(first, first + count)

    # -- processes

    def _reduce(self, sums: Tensor) -> list[float]:
        total: Tensor = self.accelerator.reduce(sums, "sum") if self.world > 1 else sums
        return total.tolist()

    def _reduce_max(self, values: list[int]) -> list[int]:
        if self.world == 1:
            return values
        every: Tensor = self.accelerator.gather(torch.tensor([values], device=self.accelerator.device))
        return [int(value) for value in every.amax(0)]

    def _on_main(self, action: Callable[[], T]) -> T:
        """What `action` gives on the main process, for all; refused there, it is refused everywhere."""
        outcome: list[Any] = [None, None]
        if self.accelerator.is_main_process:
            try:
                outcome[0] = action()
            except UserError as error:
                outcome[1] = str(error)
        value, refusal = broadcast_object_list(outcome)
        if refusal is not None:
            raise UserError(refusal)
        return value  # type: ignore[no-any-return]

    def _log(self, line: dict[str, Any]) -> None:
        if self.config.log != "none":
            values = {k: v for k, v in line.items() if isinstance(v, float)}
            values |= {f"k/{layer}": k for layer, k in line["k"].items() if isinstance(k, float)}
            self.accelerator.log(values, step=line["epoch"])


def evaluate_batch(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The sum of the losses, the number of errors and of images, in float64."""
    logits = model(images).float()
    return _sums(F.cross_entropy(logits, labels, reduction="sum"), logits, labels)


def _sums(loss: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    # The images are counted: a folder may hold some that cannot be decoded.
    return torch.stack(
        [loss.double(), (logits.argmax(1) != labels).sum().double(), loss.new_tensor(len(labels)).double()]
    )
