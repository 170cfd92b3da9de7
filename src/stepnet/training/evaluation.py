"""`stepnet evaluate`: the error of a network on a test set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import nn

from stepnet.arguments import checked
from stepnet.data import Data, get_data, list_data
from stepnet.data.batches import Batches
from stepnet.data.normalise import Normalisation
from stepnet.errors import UserError
from stepnet.exchange.model_description import ModelDescription, description_of
from stepnet.exchange.model_files import load
from stepnet.training.run import Run
from stepnet.training.scores import evaluate_batch, mean_scores


class EvaluationResult(NamedTuple):
    """Mean loss and error in per cent on the test set, of the weights after so many epochs."""

    loss: float
    error: float
    images: int
    epochs: int
    top5_error: float | None = None  # where there are more than five classes


@checked
def evaluate(
    model: nn.Module | Run | str | os.PathLike[str],
    which: Literal["best", "last"] = "last",
    data_root: str | None = None,
    data: str | Data | None = None,
    batch_size: int = 128,
    val_share: float | None = None,
) -> EvaluationResult:
    """Evaluate a network, or what `stepnet.load` opens, on the whole of the test set that it was trained for.

    `data` names another one; of a folder without val/, `val_share` is tested on. Its images are prepared as the
    network's description says.
    """
    network = model if isinstance(model, nn.Module) else load(chosen(model, which))
    description = description_of(network)
    tests = data if isinstance(data, Data) else data_of(description, data, data_root, val_share)
    how = description.preprocessing
    normalise = tests.normalise if how is None else Normalisation(how.mean, how.std)
    _check_classes(description, tests)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # whatever it was trained on
    network.eval().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    sums = torch.zeros(4, dtype=torch.float64, device=device)
    with torch.inference_mode():
        for images, labels in Batches(tests.test, normalise, batch_size).epoch():
            sums += evaluate_batch(network, images.to(device), labels.to(device))
    found = mean_scores(sums.tolist(), tests.num_classes)
    epochs = 0 if description.training is None else description.training.epochs
    return EvaluationResult(found["test_loss"], found["test_error"], int(sums[2]), epochs, found.get("test_top5_error"))


def chosen(model: Run | str | os.PathLike[str], which: Literal["best", "last"]) -> Path | str:
    """The file of a run's best epoch, or whatever was named."""
    where = model.folder if isinstance(model, Run) else model
    if Path(where).is_dir() and which == "best":
        return Run(Path(where)).best
    return where if isinstance(where, str) else Path(where)


def data_of(
    description: ModelDescription, data: str | None = None, root: str | None = None, val_share: float | None = None
) -> Data:
    """The data set that a network was trained on, or the one that is named; its images as large as then."""
    trained = description.training
    name = data or (trained.data if trained else None)
    if name is None:
        raise UserError(f"{description.model} does not say on which data it was trained: use --data NAME")
    if name in list_data():
        return get_data(name, root)
    size = description.preprocessing.image_size if description.preprocessing else None
    own = trained.val_share if trained and trained.data == name else None
    return get_data(name, root, image_size=size, val_share=own if val_share is None else val_share)


def _check_classes(description: ModelDescription, tests: Data) -> None:
    if description.classes and description.classes != tests.test.classes:
        raise UserError(
            f"{tests.name} has other classes than {description.model} was trained for: "
            f"{_shown(tests.test.classes)} there, {_shown(description.classes)} here"
        )


def _shown(classes: tuple[str, ...]) -> str:
    return f"{len(classes)} ({', '.join(classes[:3])}…)"
