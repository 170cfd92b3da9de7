"""`stepnet evaluate`: the error of a network on a test set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import nn

from stepnet.arguments import Count, checked
from stepnet.data import Batches, Data, Normalisation, get_data, is_text, list_data
from stepnet.errors import UserError
from stepnet.exchange import ModelDescription, description_of, load
from stepnet.training.machine import default_device
from stepnet.training.run import Run
from stepnet.training.scores import SEEN, Sums, evaluate_batch, figures_of
from stepnet.training.tasks import TASKS, TaskRecord


class EvaluationResult(NamedTuple):
    """Mean loss and the task's metrics on the test set, of the weights after so many epochs."""

    loss: float
    metrics: dict[str, float]
    items: int
    epochs: int
    task: TaskRecord = TaskRecord()

    @property
    def error(self) -> float:
        """Of classification, in per cent."""
        return self.metrics["error"]

    @property
    def top5_error(self) -> float | None:
        """Where there are more than five classes."""
        return self.metrics.get("top5_error")


@checked
def evaluate(
    model: nn.Module | Run | str | os.PathLike[str],
    which: Literal["best", "last"] = "last",
    data_root: str | None = None,
    data: str | Data | None = None,
    batch_size: Count = 128,
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
    device = torch.device(default_device())  # whatever it was trained on
    network.eval().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    trained = description.training
    task = TASKS[trained.task if trained else tests.task](tests)
    sums = Sums(device)
    with torch.inference_mode():
        for inputs, targets in Batches(tests.test, normalise, batch_size).epoch():
            sums.add(evaluate_batch(network, task, inputs.to(device), targets.to(device)), len(inputs))
    values = dict(zip(sums.names, sums.values.tolist(), strict=True))
    figures = figures_of(task, values)
    loss, count = figures.pop("loss"), int(values[SEEN])
    return EvaluationResult(loss, figures, count, trained.epochs if trained else 0, task.record)


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
    if is_text(name):
        trained_share = trained.val_share if trained and trained.data == name else None
        return get_data(
            name,
            root,
            val_share=trained_share if val_share is None else val_share,
            context=description.options.get("context"),
            vocabulary=description.classes or "characters",
        )
    size = description.preprocessing.image_size if description.preprocessing else None
    if name in list_data():
        return get_data(name, root, image_size=size if trained and trained.data == name else None)
    trained_share = trained.val_share if trained and trained.data == name else None
    return get_data(name, root, image_size=size, val_share=trained_share if val_share is None else val_share)


def _check_classes(description: ModelDescription, tests: Data) -> None:
    if description.classes and description.classes != tests.test.classes:
        raise UserError(
            f"{tests.name} has other classes than {description.model} was trained for: "
            f"{_shown(tests.test.classes)} there, {_shown(description.classes)} here"
        )


def _shown(classes: tuple[str, ...]) -> str:
    return f"{len(classes)} ({', '.join(classes[:3])}…)"
