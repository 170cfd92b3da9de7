"""The training loop: read a batch, take a step, save; evaluate and write the metrics at the end of each epoch.

All randomness is a function of (seed, epoch, step): data order and augmentation in `stepnet.data`, noise in the network
(`stepnet.nets.draws`). A checkpoint therefore holds weights, optimiser state and a position, and a resumed run is equal
to the bit. No step waits for the device: losses are summed there and read about once a second (`scores`). In other
files: loss and metrics (`tasks`), the objects of a run (`trainer`), saving and stopping (`saving`), communication
between processes (`processes`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import zip_longest

import torch
from torch import Tensor, nn

from stepnet.arguments import checked
from stepnet.data import Batches, Data
from stepnet.errors import UserError
from stepnet.nets import KineticCost, drawn_options
from stepnet.randomness import Stream, random_words
from stepnet.training.callbacks import Callback
from stepnet.training.config import TrainConfig
from stepnet.training.levels import Level, level_of, levels_of, refine_checkpoint
from stepnet.training.run import EpochMetrics, Run, import_modules
from stepnet.training.saving import Interrupted, Saver, StopRequest, stop_signals
from stepnet.training.scores import SEEN, Sums, at_least_float32, evaluate_batch, figures_of
from stepnet.training.sharding import coefficients_of, reshard
from stepnet.training.trainer import Trainer
from stepnet.training.trial import slices


@checked
def train_config(
    config: TrainConfig,
    resume: bool = True,
    callbacks: Sequence[Callback] = (),
    *,
    overwrite: bool = False,
    network: nn.Module | None = None,
    data: Data | None = None,
    task: str | None = None,
) -> Run:
    """Train the run of a config, or resume it if its folder has a checkpoint.

    `network`, `data` and `task` replace those that the config names.
    """
    import_modules(config.imports)
    levels: list[Level] = levels_of(config)
    if levels and network is not None:
        raise UserError(f"levels {config.recipe.levels}: they need a model by name, not a network")
    first = level_of(Run(config.out).last, levels) if levels and resume and not overwrite else 0
    with one_run_per_process(), stop_signals() as stop:
        remaining: list[Level | None] = [*levels[first:]] or [None]
        for level, deeper in zip_longest(remaining, levels[first + 1 :]):
            with Trainer(config, resume, overwrite, network, data, callbacks, task, level) as trainer:
                fit(trainer, stop)
                if level is None or deeper is None or trainer.progress.stopped or stop.number:
                    break
                trainer.processes.on_main(partial(refine_checkpoint, trainer, deeper))
                trainer.callbacks.message(f"refined from depth {level.depth} to {deeper.depth}: {deeper.depths} blocks")
            resume, overwrite, data = True, False, trainer.whole_data
    if stop.number and not trainer.is_complete:
        raise Interrupted(stop.number, f"saved {trainer.run.last}; the same command resumes there")
    if stop.number:  # after the last step: a comparison must not start its next run
        raise Interrupted(stop.number, f"{trainer.run.folder} is complete")
    return trainer.run


_training = threading.Lock()


@contextmanager
def one_run_per_process() -> Iterator[None]:
    """Raise if this process is already training: foreign networks draw dropout from torch's global generator."""
    if not _training.acquire(blocking=False):
        raise UserError(
            "another run is being trained in this process, and both would draw from torch's global generator: wait "
            "until it ends, or use another process"
        )
    try:
        yield
    finally:
        _training.release()


def fit(trainer: Trainer, stop: StopRequest) -> None:
    """Train to the last epoch, or until a signal or a callback stops the run."""
    config, recipe, progress, batches = trainer.config, trainer.recipe, trainer.progress, trainer.batches
    device, task, scores, callbacks = trainer.processes.device, trainer.task, trainer.scores, trainer.callbacks
    saver = Saver(trainer, scores, stop)
    trainer.start_callbacks()
    if not trainer.is_done:
        trainer.processes.on_main(trainer.record_start)
    stop.notify = callbacks.note

    while not trainer.is_done:
        epoch = progress.epoch
        trainer.set_training_mode(trainer.model)
        scores.begin()
        for inputs, targets in batches.epoch(epoch, progress.step):
            step, lr = progress.step, trainer.learning_rate(epoch, progress.step)
            global_step = epoch * len(batches) + step
            inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)

            word = random_words(1, config.seed, global_step, trainer.processes.rank, Stream.NOISE)
            torch.manual_seed(int(word[0]))  # for mixup, and for dropout in foreign networks
            if trainer.mix is not None:
                inputs, targets = trainer.mix(inputs, targets)
            places, parts = batches.places(step, len(inputs)), slices(len(inputs), recipe.accumulate)
            for part in parts:
                x, y, size = inputs[part], targets[part], batches.size(step)
                # Gradients are synchronised between processes with the last part of a batch.
                with nullcontext() if part is parts[-1] else trainer.accelerator.no_sync(trainer.model):
                    sums = forward_backward(trainer, x, y, places[part], global_step, size)
                scores.sums.add(sums, len(x))
            if recipe.clip is not None:
                trainer.accelerator.clip_grad_norm_(trainer.network.parameters(), recipe.clip)
            for group in trainer.optimizer.param_groups:
                group["lr"] = lr * group["multiple"]
            trainer.stepper.step()
            trainer.stepper.zero_grad(set_to_none=True)

            scores.end_step()
            callbacks.step(trainer)
            saver.after_step()

        scores.read()
        saver.check_finite("the loss", progress.loss_sum)
        evaluation = evaluate_epoch(trainer, saver, trainer.tests, "test_")
        if trainer.validation is not None:
            evaluation |= evaluate_epoch(trainer, saver, trainer.validation, "val_")
        saver.check_finite("the test loss", evaluation["test_loss"])
        line: EpochMetrics = {
            "epoch": epoch,
            **figures_of(task, {**progress.sums, SEEN: progress.seen}),
            **evaluation,
            "lr": trainer.learning_rate(epoch, len(batches) - 1),
            task.record.speed: round(progress.seen / max(progress.seconds, 1e-9), 1),
            "seconds": round(progress.seconds, 3),
            **({"depth": trainer.level.depth} if trainer.level else {}),
            "k": coefficients_of(trainer.evaluated),
        }
        callbacks.epoch(trainer, line)
        saver.end_epoch(line)
        trainer.log(line)
    trainer.accelerator.wait_for_everyone()  # one that exits early would break the connections of the others
    (number,) = trainer.processes.largest([stop.number])
    stop.number = int(number)


def forward_backward(
    trainer: Trainer, inputs: Tensor, targets: Tensor, places: range, global_step: int, size: int
) -> dict[str, Tensor]:
    """Accumulate the gradient of some items of a global batch of `size`; return their loss and the task's sums."""
    recipe, task = trainer.recipe, trainer.task
    noise = drawn_options(trainer.network, trainer.config.seed, global_step, places)
    cost = None if recipe.running_cost == "weight_decay" else KineticCost()
    outputs = at_least_float32(trainer.model(inputs, **noise, **({} if cost is None else {"cost": cost})))
    loss = task.training_loss(outputs, targets, recipe)
    objective = loss if cost is None else loss + recipe.kinetic * len(inputs) * cost.total
    # Gradients are averaged over processes; the average must be the gradient of the mean loss over the global batch.
    trainer.accelerator.backward(objective * (trainer.processes.count / size))
    return {"loss": loss.detach(), **task.sums(outputs.detach(), targets)}


def evaluate_epoch(trainer: Trainer, saver: Saver, batches: Batches, prefix: str) -> dict[str, float]:
    """Return the metrics of the current network on a whole set, by their names in metrics.jsonl."""
    network, sums = trainer.evaluated.eval(), Sums(trainer.processes.device)
    for inputs, targets in batches.epoch():
        saver.stop_if_asked()
        inputs, targets = inputs.to(trainer.processes.device), targets.to(trainer.processes.device)
        with trainer.processes.inference(), trainer.accelerator.autocast():
            sums.add(evaluate_batch(network, trainer.task, inputs, targets), len(inputs))
    reshard(network)
    figures = figures_of(trainer.task, sums.read(trainer.processes))
    return {f"{prefix}{name}": value for name, value in figures.items()}
