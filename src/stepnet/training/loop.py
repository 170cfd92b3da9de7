"""The training loop, top to bottom: read a batch, step, save; evaluate and write a line at the end of each epoch.

All randomness is a function of (seed, epoch, step): data order and augmentation by `stepnet.data`, gates and noise by
a seed set before each step. A checkpoint therefore holds weights, momentum and a position, and a resumed run goes on
to the same bits.
"""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from stepnet.data import evaluation_batches, get_data, training_batches
from stepnet.errors import UserError
from stepnet.nets import ResidualNetwork, coefficients
from stepnet.nets.compiled import compile_blocks
from stepnet.nets.cost import KineticCost
from stepnet.nets.residual import vectors
from stepnet.nets.shakeshake import ShakeShake
from stepnet.randomness import Stream, random_words
from stepnet.training import checkpoint
from stepnet.training.build import build_network
from stepnet.training.checkpoint import Progress
from stepnet.training.config import TrainConfig
from stepnet.training.precision import check_precision
from stepnet.training.rendezvous import meet_anew
from stepnet.training.run import Run
from stepnet.training.signals import Asked, Interrupted, stop_signals


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
        self.accelerator = Accelerator(
            cpu=not torch.cuda.is_available(),
            mixed_precision="no" if config.precision == "fp32" else config.precision,
            log_with=None if config.log == "none" else config.log,
            project_dir=config.out,
        )
        self.world = self.accelerator.num_processes
        data = get_data(config.data, config.data_root)
        self.net = self._network(build_network(config, data))
        if self.recipe.running_cost == "kinetic" and not isinstance(self.net, ResidualNetwork):
            raise UserError(f"running_cost = 'kinetic': {config.model} has no stages whose f(X_n) could be summed")
        self.optimizer = self._optimizer()
        rank = self.accelerator.process_index
        self.batches = training_batches(
            data, self.recipe.batch_size, seed=config.seed, rank=rank, world_size=self.world
        )
        self.tests = evaluation_batches(data, 500 * self.world, rank=rank, world_size=self.world)
        self.run = Run(Path(config.out))
        found = self.run.open(config, resume) if self.accelerator.is_main_process else False
        self.accelerator.wait_for_everyone()
        if found or (self.run.last.exists() and not self.accelerator.is_main_process):
            self.progress = checkpoint.load(self.run.last, self.net, self.optimizer)
        else:
            self.progress = Progress()
        self.model, self.stepper = self.accelerator.prepare(self._compiled(), self.optimizer)
        self.saved_at = time.monotonic()

    def fit(self) -> Run:
        """Epoch after epoch, to the end."""
        if self.accelerator.is_main_process:
            self.run.cut_metrics(self.progress.epoch)
            if self.config.log != "none":
                self.accelerator.init_trackers("tensorboard")
        self.watcher.start(self.config, len(self.batches), self.progress)
        while self.progress.epoch < self.recipe.epochs:
            self._epoch()
        self.accelerator.wait_for_everyone()  # a rank that leaves early would tear the connection from the others
        return self.run

    def close(self) -> None:
        """Let go of the processes.

        DistributedDataParallel goes first. If it held the last reference to its process group, the group's threads
        would be joined under Python's lock, for which one of them may be waiting: now and then a process never ended.
        """
        self.model = self.stepper = None
        self.accelerator.free_memory()
        self.accelerator.end_training()

    def _epoch(self) -> None:
        progress, epoch = self.progress, self.progress.epoch
        self._training_mode()
        for images, labels in self.batches.epoch(epoch, progress.step):
            started = time.perf_counter()
            loss, wrong = self._step(images, labels)
            progress.loss_sum += loss
            progress.wrong += wrong
            progress.seen += self.batches.size(progress.step)
            progress.step += 1
            progress.seconds += time.perf_counter() - started
            self.watcher.step(progress, self.batches.batch_size / (time.perf_counter() - started))
            self._save_when_due()
        line = self._evaluate_epoch()
        self._stop_if_asked()
        if self.accelerator.is_main_process:
            if progress.best_epoch == epoch:
                checkpoint.save(self.run.best, self.net, None, progress, self.config.model)
            self.run.append_metrics(line)
        progress.begin_epoch(epoch + 1)
        self._save()
        self._log(line)
        self.watcher.epoch(line)

    def _step(self, images: Tensor, labels: Tensor) -> tuple[float, float]:
        """One step of SGD; the sum of the losses and the number of errors over the global batch."""
        epoch, step = self.progress.epoch, self.progress.step
        size, lr = self.batches.size(step), self._learning_rate(epoch, step)
        serial = epoch * len(self.batches) + step
        noise = random_words(1, self.config.seed, serial, self.accelerator.process_index, Stream.NOISE)
        torch.manual_seed(int(noise[0]))
        device = self.accelerator.device
        images, labels = images.to(device), labels.to(device)
        kinetic = KineticCost() if self.recipe.running_cost == "kinetic" else None
        with self._noise(serial, step):
            logits = self.model(images, **self._forward_options(serial, kinetic))
        losses = F.cross_entropy(logits.float(), labels, reduction="sum", label_smoothing=self.recipe.label_smoothing)
        with torch.no_grad():
            sums = torch.stack([losses.detach().double(), (logits.argmax(1) != labels).sum().double()])
        loss, wrong = self._reduce(sums)
        if not math.isfinite(loss):
            kept = f"the last good checkpoint is {self.run.last}" if self.run.last.exists() else "no checkpoint yet"
            raise UserError(f"the loss is {loss} at epoch {epoch}, step {step}, lr {lr:g}: lower --lr; {kept}")
        # Processes average their gradients, so each counts its sum as a share of the mean over the global batch.
        objective = losses
        if kinetic is not None:
            objective = objective + self.recipe.kinetic * len(images) * kinetic.total
        self.accelerator.backward(objective * (self.world / size))
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.stepper.step()
        self.stepper.zero_grad(set_to_none=True)
        return loss, wrong

    def _evaluate_epoch(self) -> dict[str, Any]:
        progress = self.progress
        test_loss, test_error = self.evaluate()
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
        sums = torch.zeros(2, dtype=torch.float64, device=self.accelerator.device)
        with torch.inference_mode(), self.accelerator.autocast():
            for images, labels in self.tests.epoch():
                sums += evaluate_batch(self.net, images.to(sums.device), labels.to(sums.device))
        loss, wrong = self._reduce(sums)
        count = len(self.tests.source)
        return loss / count, 100 * wrong / count

    # -- saving and stopping

    def _save(self) -> None:
        if self.accelerator.is_main_process:
            checkpoint.save(self.run.last, self.net, self.optimizer, self.progress, self.config.model)
        self.saved_at = time.monotonic()

    def _save_when_due(self) -> None:
        self._stop_if_asked()
        due = self.progress.step % self.config.checkpoint_steps == 0
        if due or time.monotonic() - self.saved_at > 60 * self.config.checkpoint_minutes:
            self._save()

    def _stop_if_asked(self) -> None:
        number = int(self._reduce_max(self.asked.number))
        if number:
            self._save()
            self.accelerator.wait_for_everyone()
            raise Interrupted(number, f"saved {self.run.last}; the same command goes on from there")

    # -- the parts of a run

    def _network(self, network: nn.Module) -> nn.Module:
        if self.config.sync_bn:
            if self.accelerator.device.type == "cpu":
                raise UserError("--sync-bn: torch's synchronised batch norm is for GPUs, and this run is on a CPU")
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        layout = torch.channels_last if self.config.channels_last else torch.contiguous_format
        return network.to(self.accelerator.device).to(memory_format=layout)  # type: ignore[call-overload, no-any-return]

    def _compiled(self) -> nn.Module:
        if not self.config.compile:
            return self.net
        if isinstance(self.net, ShakeShake):  # its coefficients would be constants of the graph
            return self.net
        if getattr(self.net, "stochastic", None) is not None:
            compile_blocks(self.net)
            return self.net
        # dynamic=False: the short last batch gets a graph of its own, and the bits of the others stay as they were.
        return torch.compile(self.net, dynamic=False)  # type: ignore[return-value]

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

    def _forward_options(self, serial: int, kinetic: KineticCost | None) -> dict[str, Any]:
        """Gates, drawn before the forward pass as a function of (seed, step), and the cost that is to be summed."""
        stochastic = getattr(self.net, "stochastic", None)
        options = {} if stochastic is None else {"gates": stochastic.draw(self.config.seed, serial)}
        return options if kinetic is None else options | {"cost": kinetic}

    def _noise(self, serial: int, step: int) -> AbstractContextManager[None]:
        """Shake-shake's coefficients: drawn for the global batch, of which this process takes its slice."""
        if not isinstance(self.net, ShakeShake):
            return nullcontext()
        generator = torch.Generator()
        generator.manual_seed(int(random_words(1, self.config.seed, serial, Stream.NOISE)[0]))
        start = step * self.batches.batch_size
        here = self.batches.positions(step)
        noise = self.net.draw_noise(self.batches.size(step), generator)
        return self.net.with_noise([c.of(slice(here.start - start, here.stop - start)) for c in noise])

    # -- processes

    def _reduce(self, sums: Tensor) -> list[float]:
        total: Tensor = self.accelerator.reduce(sums, "sum") if self.world > 1 else sums
        return total.tolist()

    def _reduce_max(self, value: int) -> float:
        if self.world == 1:
            return value
        every: Tensor = self.accelerator.gather(torch.tensor([value], device=self.accelerator.device))
        return float(every.max())

    def _log(self, line: dict[str, Any]) -> None:
        if self.config.log != "none":
            values = {k: v for k, v in line.items() if isinstance(v, float)}
            values |= {f"k/{layer}": k for layer, k in line["k"].items() if isinstance(k, float)}
            self.accelerator.log(values, step=line["epoch"])


def evaluate_batch(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The sum of the losses and the number of errors, in float64."""
    logits = model(images).float()
    loss = F.cross_entropy(logits, labels, reduction="sum").double()
    return torch.stack([loss, (logits.argmax(1) != labels).sum().double()])
