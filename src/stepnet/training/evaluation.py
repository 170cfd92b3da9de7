"""`stepnet evaluate`: the metrics of a network on a test set, and its errors by class."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from stepnet.arguments import Count, checked
from stepnet.data import Batches, Data, Normalisation, Request, get_data, is_text, list_data
from stepnet.errors import UserError
from stepnet.exchange import ModelDescription, description_of, load
from stepnet.training.histories import ClassErrors, Mistake
from stepnet.training.machine import default_device
from stepnet.training.run import Run
from stepnet.training.scores import SEEN, Sums, evaluate_batch, figures_of
from stepnet.training.tasks import TASKS, TaskRecord

THUMBNAIL = 96  # pixels of the longer side at most


class EvaluationResult(NamedTuple):
    """Mean loss and metrics on the test set, of the weights after `epochs` epochs."""

    loss: float
    metrics: dict[str, float]
    items: int
    epochs: int
    task: TaskRecord = TaskRecord()

    @property
    def error(self) -> float:
        """The error of classification, in per cent."""
        return self.metrics["error"]

    @property
    def score(self) -> float:
        """The task's first metric, which may be the loss itself."""
        return {"loss": self.loss, **self.metrics}[self.task.metric.name]


@checked
def evaluate(
    model: nn.Module | Run | str | os.PathLike[str],
    which: Literal["best", "last"] = "last",
    data_root: str | None = None,
    data: str | Data | None = None,
    batch_size: Count = 128,
    val_share: float | None = None,
) -> EvaluationResult:
    """Evaluate a network, a run or a model file on the test set of the data that it was trained on.

    `data` is another data set; of a folder without val/, the share `val_share` is tested on. Images are preprocessed as
    the network's description says.
    """
    network = model if isinstance(model, nn.Module) else load(chosen(model, which))
    description = description_of(network)
    tests = data if isinstance(data, Data) else data_of(description, data, data_root, val_share)
    _check_classes(description, tests)
    device = torch.device(default_device())  # not necessarily the one it was trained on
    network.eval().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    trained = description.training
    task = TASKS[trained.task if trained else tests.task](tests)
    sums = Sums(device)
    with torch.inference_mode():
        for inputs, targets in Batches(tests.test, normalisation_of(description, tests), batch_size).epoch():
            sums.add(evaluate_batch(network, task, inputs.to(device), targets.to(device)), len(inputs))
    values = dict(zip(sums.names, sums.values.tolist(), strict=True))
    figures = figures_of(task, values)
    loss, count = figures.pop("loss"), int(values[SEEN])
    return EvaluationResult(loss, figures, count, trained.epochs if trained else 0, task.record)


def class_errors(
    model: nn.Module | Run | str | os.PathLike[str],
    which: Literal["best", "last"] = "last",
    data_root: str | None = None,
    data: str | Data | None = None,
    val_share: float | None = None,
    mistakes: int = 5,
) -> tuple[EvaluationResult, ClassErrors]:
    """Evaluate a network as `evaluate` does, and count its errors by class in the same pass."""
    network = model if isinstance(model, nn.Module) else load(chosen(model, which))
    tests = data if isinstance(data, Data) else data_of(description_of(network), data, data_root, val_share)
    source: Any = tests.test  # its labels are an array
    if not hasattr(source, "labels"):
        raise UserError(f"errors by class: {tests.name} has no labels of classes; leave out --classes")
    with _outputs(network) as batches:
        result = evaluate(network, data=tests)
    probability, predicted = torch.cat(batches).softmax(dim=1).max(dim=1)
    places = _readable(source)
    labels, guesses = np.asarray(source.labels)[places], predicted.numpy()
    confusion = np.zeros((tests.num_classes, tests.num_classes), dtype=np.int64)
    np.add.at(confusion, (labels, guesses), 1)
    wrong = [n for n in torch.argsort(probability, descending=True).tolist() if guesses[n] != labels[n]]
    names, paths = source.classes, getattr(source, "paths", None)
    worst = tuple(
        Mistake(
            str(paths[places[n]] if paths else places[n]), names[labels[n]], names[guesses[n]], float(probability[n])
        )
        for n in wrong[:mistakes]
    )
    pictures = tuple(_thumbnail(source, places[n]) for n in wrong[:mistakes])
    rows = tuple(map(tuple, confusion.tolist()))
    errors = tuple(100 * (1 - row[n] / sum(row)) if any(row) else None for n, row in enumerate(rows))
    return result, ClassErrors(result.epochs, names, errors, rows, worst, pictures)


def chosen(model: Run | str | os.PathLike[str], which: Literal["best", "last"]) -> Path | str:
    """Return the file of a run's best epoch, or the location unchanged."""
    where = model.folder if isinstance(model, Run) else model
    if Path(where).is_dir() and which == "best":
        return Run(Path(where)).best
    return where if isinstance(where, str) else Path(where)


def data_of(
    description: ModelDescription, data: str | None = None, root: str | None = None, val_share: float | None = None
) -> Data:
    """Return the data set `data`, by default the one a network was trained on, with images of the trained size."""
    trained = description.training
    name = data or (trained.data if trained else None)
    if name is None:
        raise UserError(f"{description.model} does not say on which data it was trained: use --data NAME")
    same = trained if trained and trained.data == name else None
    share = same.val_share if same and val_share is None else val_share
    if is_text(name):
        if description.preprocessing is not None:
            raise UserError(f"{description.model} takes images, and {name} is text: name a data set of images")
        context, vocabulary = description.options.get("context"), description.classes or "characters"
        return get_data(name, root, val_share=share, context=context, vocabulary=vocabulary)
    size = description.preprocessing.image_size if description.preprocessing else None
    if name in list_data():
        return get_data(name, root, image_size=size if same else None)
    return get_data(name, root, image_size=size, val_share=share)


def normalisation_of(description: ModelDescription, data: Data) -> Normalisation:
    """Return the normalisation that a network was trained with; by default that of the data."""
    how = description.preprocessing
    return data.normalise if how is None else Normalisation(how.mean, how.std)


def _check_classes(description: ModelDescription, tests: Data) -> None:
    if description.training and description.training.task == "next_token" and len(tests.test.shape) == 3:
        raise UserError(f"{description.model} takes text, but {tests.name} holds images: name a text file")
    if description.classes and description.classes != tests.test.classes:
        raise UserError(
            f"{tests.name} has other classes than {description.model} was trained for: "
            f"{_shown(tests.test.classes)} there, {_shown(description.classes)} here"
        )


def _shown(classes: tuple[str, ...]) -> str:
    return f"{len(classes)} ({', '.join(classes[:3])}…)"


def _thumbnail(source: Any, place: int) -> str:
    """Return an image of a test set as a small PNG in base64."""
    channels = source.shape[-1]
    plain = Normalisation((0.0,) * channels, (1.0,) * channels)
    images, _ = next(iter(source.read([Request(np.array([place]), None)], plain)))
    pixels = (255 * images[0].permute(1, 2, 0)).round().clip(0, 255).byte().numpy()
    picture = Image.fromarray(pixels[..., 0] if channels == 1 else pixels[..., :3])
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def _readable(test: Any) -> list[int]:
    """Return the indices of the images that were evaluated: files that cannot be decoded are left out."""
    unreadable = getattr(test, "unreadable", ())
    return [n for n in range(len(test)) if not unreadable or test.paths[n] not in unreadable]


@contextmanager
def _outputs(network: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the outputs of the network for each batch."""
    outputs: list[Tensor] = []
    handle = network.register_forward_hook(lambda module, inputs, output: outputs.append(output.detach().float().cpu()))
    try:
        yield outputs
    finally:
        handle.remove()
