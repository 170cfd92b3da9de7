"""`stepnet evaluate`: the test error of a run's checkpoint."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import torch

from stepnet.data import Data, evaluation_batches, get_data
from stepnet.training import checkpoint
from stepnet.training.build import build_network
from stepnet.training.run import Run
from stepnet.training.scores import evaluate_batch


class Evaluation(NamedTuple):
    """Mean loss and error in per cent on the test set, of the weights after so many epochs."""

    loss: float
    error: float
    images: int
    epochs: int


def load_network(
    run: Run, which: Literal["best", "last"] = "last", data: Data | None = None
) -> tuple[torch.nn.Module, checkpoint.Progress]:
    """The network of a run with the weights of a checkpoint; `data` spares reading the run's data set again."""
    config = dataclasses.replace(run.config, start_like=None)  # the checkpoint has the weights
    network = build_network(config, data or get_data(config.data, config.data_root))
    return network, checkpoint.load(getattr(run, which), network)


def evaluate(run: Run, which: Literal["best", "last"] = "last", data_root: str | None = None) -> Evaluation:
    """Evaluate a checkpoint on the whole test set."""
    config = run.config
    data = get_data(config.data, data_root or config.data_root)
    network, progress = load_network(run, which, data)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # whatever it was trained on
    network.eval().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    sums = torch.zeros(4, dtype=torch.float64, device=device)
    with torch.inference_mode():
        for images, labels in evaluation_batches(data, 500).epoch():
            sums += evaluate_batch(network, images.to(device), labels.to(device))
    loss, wrong, count, _ = sums.tolist()
    epochs = progress.epoch + 1 if which == "best" else progress.epoch
    return Evaluation(loss / count, 100 * wrong / count, int(count), epochs)
