"""The training loop, top to bottom: read a batch, step, save; evaluate and write a line at the end of each epoch.

All randomness is a function of (seed, epoch, step): data order and augmentation by `stepnet.data`, noise by the network
(`stepnet.nets.draws`). A checkpoint therefore holds weights, momentum and a position, and a resumed run goes on to the
same bits. No step waits for the device: losses are summed there and read about once a second (`scores`). Beside this
file: loss and metrics (`tasks`), the parts of a run (`trainer`), when it is saved and how it stops (`saving`), how its
processes talk (`processes`).
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
from stepnet.nets import KineticCost, coefficients, drawn_options
from stepnet.randomness import Stream, random_words
from stepnet.training.callbacks import Callback
from stepnet.training.config import TrainConfig
from stepnet.training.imports import import_modules
from stepnet.training.levels import Level, level_of, levels_of, refine_checkpoint
from stepnet.training.run import EpochMetrics, Run
from stepnet.training.saving import Saver
from stepnet.training.scores import SEEN, Sums, at_least_float32, evaluate_batch, figures_of
from stepnet.training.signals import Interrupted, StopRequest, stop_signals
from stepnet.training.trainer import Trainer, slices


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
    """Train what a config says, from the beginning or from where its folder stands.

    A `network`, `data` or `task` that is given takes the place of what the config names.
    """
    import_modules(config.imports)
    levels: list[Level] = levels_of(config)
    if levels and network is not None:
        raise UserError(f"levels {config.recipe.levels}: the network is built already; name a model instead")
    first = level_of(Run(config.out).last, levels) if levels and resume and not overwrite else 0
    with only_run_here(), stop_signals() as stop:
        parts: list[Level | None] = [*levels[first:]] or [None]
        for level, deeper in zip_longest(parts, levels[first + 1 :]):
            with Trainer(config, resume, overwrite, network, data, callbacks, task, level) as trainer:
                fit(trainer, stop)
                if level is None or deeper is None or trainer.progress.stopped or stop.number:
                    break
                trainer.processes.on_main(partial(refine_checkpoint, trainer, deeper))
                trainer.callbacks.message(f"refined from depth {level.depth} to {deeper.depth}: {deeper.depths} blocks")
            resume, overwrite, data = True, False, trainer.data
    if stop.number and not trainer.is_complete:
        raise Interrupted(stop.number, f"saved {trainer.run.last}; the same command resumes there")
    if stop.number:  # after the last step: nothing is left to save, but a comparison must not start its next run
        raise Interrupted(stop.number, f"{trainer.run.folder} is complete")
    return trainer.run


_training = threading.Lock()


@contextmanager
def only_run_here() -> Iterator[None]:
    """Refuse a second run in this process: dropout of networks that are not ours draws from torch's only generator."""
    if not _training.acquire(blocking=False):
        raise UserError(
            "another run is being trained in this process, and both would draw from torch's one generator: wait until "
            "it ends, or train in a process of its own"
        )
    try:
        yield
    finally:
        _training.release()


def fit(trainer: Trainer, stop: StopRequest) -> None:
    """Epoch after epoch, to the end."""
    config, recipe, progress, batches = trainer.config, trainer.recipe, trainer.progress, trainer.batches
    device, task, scores, callbacks = trainer.processes.device, trainer.task, trainer.scores, trainer.callbacks
    saver = Saver(trainer, scores, stop)
    trainer.start_callbacks()
    if not trainer.is_done:
        trainer.processes.on_main(trainer.record_start)
    stop.answer = callbacks.note

    while not trainer.is_done:
        epoch = progress.epoch
        trainer.training_mode(trainer.model)
        scores.begin()
        for inputs, targets in batches.epoch(epoch, progress.step):
            step, lr = progress.step, trainer.learning_rate(epoch, progress.step)
            serial = epoch * len(batches) + step
            inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)

            word = random_words(1, config.seed, serial, trainer.processes.rank, Stream.NOISE)
            torch.manual_seed(int(word[0]))  # for mixup, and for dropout and the like in networks that are not ours
            if trainer.mix is not None:
                inputs, targets = trainer.mix(inputs, targets)
            places, parts = batches.places(step, len(inputs)), slices(len(inputs), recipe.accumulate)
            for part in parts:  # processes exchange the gradient of a batch once
                with nullcontext() if part is parts[-1] else trainer.accelerator.no_sync(trainer.model):
                    found = add_gradient(trainer, inputs[part], targets[part], places[part], serial, batches.size(step))
                scores.add(found, part.stop - part.start)
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
        test = evaluate_epoch(trainer, saver, trainer.tests, "test_")
        if trainer.validation is not None:
            test |= evaluate_epoch(trainer, saver, trainer.validation, "val_")
        saver.check_finite("the test loss", test["test_loss"])
        line: EpochMetrics = {
            "epoch": epoch,
            **figures_of(task, {**progress.sums, SEEN: progress.seen}),
            **test,
            "lr": trainer.learning_rate(epoch, len(batches) - 1),
            task.record.speed: round(progress.seen / max(progress.seconds, 1e-9), 1),
            "seconds": round(progress.seconds, 3),
            **({"depth": trainer.level.depth} if trainer.level else {}),
            "k": coefficients(trainer.evaluated),
        }
        callbacks.epoch(trainer, line)
        saver.end_epoch(line)
        trainer.log(line)
    trainer.processes.wait_for_all()
    (number,) = trainer.processes.largest([stop.number])
    stop.number = int(number)


def add_gradient(
    trainer: Trainer, inputs: Tensor, targets: Tensor, places: range, serial: int, size: int
) -> dict[str, Tensor]:
    """Add the gradient of some items of a global batch of `size`; give what is summed of them."""
    recipe, task = trainer.recipe, trainer.task
    noise = drawn_options(trainer.network, trainer.config.seed, serial, places)
    cost = None if recipe.running_cost == "weight_decay" else KineticCost()
    outputs = at_least_float32(trainer.model(inputs, **noise, **({} if cost is None else {"cost": cost})))
    loss = task.training_loss(outputs, targets, recipe)
    objective = loss if cost is None else loss + recipe.kinetic * len(inputs) * cost.total
    # Processes average their gradients, so each counts its sum as a share of the mean over the global batch.
    trainer.accelerator.backward(objective * (trainer.processes.count / size))
    return {"loss": loss.detach(), **task.sums(outputs.detach(), targets)}


def evaluate_epoch(trainer: Trainer, saver: Saver, batches: Batches, prefix: str) -> dict[str, float]:
    """The figures of the network as it is now over a whole set, by their names in metrics.jsonl."""
    network, sums = trainer.evaluated.eval(), Sums(trainer.processes.device)
    for inputs, targets in batches.epoch():
        saver.stop_if_asked()
        inputs, targets = inputs.to(sums.values.device), targets.to(sums.values.device)
        with torch.inference_mode(), trainer.accelerator.autocast():
            sums.add(evaluate_batch(network, trainer.task, inputs, targets), len(inputs))
    figures = figures_of(trainer.task, sums.read(trainer.processes))
    return {f"{prefix}{name}": value for name, value in figures.items()}
