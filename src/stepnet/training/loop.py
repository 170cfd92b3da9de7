"""The training loop, top to bottom: read a batch, step, save; evaluate and write a line at the end of each epoch.

All randomness is a function of (seed, epoch, step): data order and augmentation by `stepnet.data`, noise by the network
(`stepnet.nets.draws`). A checkpoint therefore holds weights, momentum and a position, and a resumed run goes on to the
same bits. No step waits for the device: losses are summed there and read about once a second (`scores`). Beside this
file: the parts of a run (`job`), when it is saved and how it stops (`saving`), how its processes talk (`processes`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn

from stepnet.data import Data
from stepnet.errors import UserError
from stepnet.nets import coefficients
from stepnet.nets.cost import KineticCost
from stepnet.nets.draws import drawn_options
from stepnet.randomness import Stream, random_words
from stepnet.schemes import Scheme
from stepnet.training.checkpoint import Progress
from stepnet.training.config import TrainConfig
from stepnet.training.job import Job
from stepnet.training.run import EpochMetrics, EvaluationScores, Run
from stepnet.training.saving import Saver
from stepnet.training.scores import EpochScores, at_least_float32, evaluate_batch, mean_scores
from stepnet.training.signals import Interrupted, StopRequest, stop_signals


class Watcher:
    """Told of every step and epoch; the command line's progress bar is one."""

    def note(self, text: str) -> None:
        """Something begins that takes a while."""

    def describe(self, lines: Sequence[str], scheme: Scheme | None) -> None:
        """What the run is, in lines; and the scheme whose coefficients it learns, where it is known."""

    def start(self, config: TrainConfig, steps_per_epoch: int, progress: Progress) -> None:
        """The run begins, or goes on from `progress`."""

    def step(self, progress: Progress, images_per_second: float) -> None:
        """A step is done. The sums of `progress` are those of the last reading."""

    def epoch(self, line: EpochMetrics) -> None:
        """An epoch is done; `line` is its line of metrics.jsonl."""


def train_config(
    config: TrainConfig,
    resume: bool = True,
    watcher: Watcher | None = None,
    *,
    overwrite: bool = False,
    network: nn.Module | None = None,
    data: Data | None = None,
) -> Run:
    """Train what a config says, from the beginning or from where its folder stands.

    A `network` or `data` that is given takes the place of what the config names.
    """
    watcher = watcher or Watcher()
    with only_run_here(), stop_signals() as stop, Job(config, resume, overwrite, network, data, watcher.note) as job:
        fit(job, watcher, stop)
    if stop.number:  # after the last step: nothing is left to save, but a comparison must not start its next run
        raise Interrupted(stop.number, f"{job.run.folder} is complete")
    return job.run


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


def fit(job: Job, watcher: Watcher, stop: StopRequest) -> None:
    """Epoch after epoch, to the end."""
    config, recipe, progress, batches, device = job.config, job.recipe, job.progress, job.batches, job.processes.device
    scores = EpochScores(progress, job.processes)
    saver = Saver(job, scores, stop)
    watcher.describe(job.summary(), job.scheme)
    watcher.start(config, len(batches), progress)
    if not job.is_done:
        job.processes.on_main(job.record_start)
    stop.between_steps = True

    while not job.is_done:
        epoch = progress.epoch
        job.training_mode(job.model)
        scores.begin()
        for images, labels in batches.epoch(epoch, progress.step):
            step, lr = progress.step, job.learning_rate(epoch, progress.step)
            serial = epoch * len(batches) + step
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)

            noise = drawn_options(job.net, config.seed, serial, batches.places(step, len(images)))
            word = random_words(1, config.seed, serial, job.processes.rank, Stream.NOISE)
            torch.manual_seed(int(word[0]))  # for dropout and the like in networks that are not ours
            cost = None if recipe.running_cost == "weight_decay" else KineticCost()
            logits = job.model(images, **noise, **({} if cost is None else {"cost": cost}))
            smoothing = recipe.label_smoothing
            loss = F.cross_entropy(at_least_float32(logits), labels, reduction="sum", label_smoothing=smoothing)
            objective = loss if cost is None else loss + recipe.kinetic * len(images) * cost.total

            # Processes average their gradients, so each counts its sum as a share of the mean over the global batch.
            job.accelerator.backward(objective * (job.processes.count / batches.size(step)))
            for group in job.optimizer.param_groups:
                group["lr"] = lr * group["multiple"]
            job.stepper.step()
            job.stepper.zero_grad(set_to_none=True)

            scores.add(loss.detach(), logits.detach(), labels)
            watcher.step(progress, scores.images_per_second)
            saver.after_step()

        scores.read()
        saver.check_finite("the loss", progress.loss_sum)
        test = evaluate_epoch(job, saver)
        saver.check_finite("the test loss", test["test_loss"])
        line: EpochMetrics = {
            "epoch": epoch,
            "loss": progress.loss_sum / progress.seen,
            "error": 100 * progress.wrong / progress.seen,
            **test,
            "lr": job.learning_rate(epoch, len(batches) - 1),
            "images_per_second": round(progress.seen / max(progress.seconds, 1e-9), 1),
            "seconds": round(progress.seconds, 3),
            "k": coefficients(job.net),
        }
        saver.end_epoch(line)
        job.log(line)
        watcher.epoch(line)
    job.processes.wait_for_all()
    (number,) = job.processes.largest([stop.number])
    stop.number = int(number)


def evaluate_epoch(job: Job, saver: Saver) -> EvaluationScores:
    """The scores of the network as it is now, over the whole test set."""
    job.net.eval()
    sums = torch.zeros(4, dtype=torch.float64, device=job.processes.device)
    for images, labels in job.tests.epoch():
        saver.stop_if_asked()
        with torch.inference_mode(), job.accelerator.autocast():
            sums += evaluate_batch(job.net, images.to(sums.device), labels.to(sums.device))
    return mean_scores(job.processes.sum(sums), job.data.num_classes)
