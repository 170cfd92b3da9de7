"""Where a network errs: errors by class, the confusion matrix, and the images it gets most wrong."""

from __future__ import annotations

import base64
import io
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from stepnet.data import Data, Normalisation, Request
from stepnet.exchange import description_of, load
from stepnet.files import atomic_file
from stepnet.training.evaluation import EvaluationResult, chosen, data_of, evaluate
from stepnet.training.histories import Mistake
from stepnet.training.run import Run

THUMBNAIL = 96  # pixels of the longer side at most


@dataclass(frozen=True)
class ClassErrors:
    """The result on a test set, class by class."""

    result: EvaluationResult
    classes: tuple[str, ...]
    confusion: NDArray[np.int64]  # images of the class of the row that were taken for that of the column
    mistakes: tuple[Mistake, ...]  # the surest first
    pictures: tuple[str, ...] = ()  # of the mistakes: small PNG files in base64

    @property
    def errors(self) -> list[float]:
        """In per cent of the images of each class; NaN for a class that the test set does not have."""
        with np.errstate(invalid="ignore"):
            shares: list[float] = (100 * (1 - np.diag(self.confusion) / self.confusion.sum(axis=1))).tolist()
        return shares

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        known = {
            name: None if np.isnan(error) else error for name, error in zip(self.classes, self.errors, strict=True)
        }
        mistakes = [mistake._asdict() for mistake in self.mistakes]
        return {"class_errors": known, "confusion": self.confusion.tolist(), "mistakes": mistakes}

    def write(self, run: Run) -> None:
        """Keep it in the run's folder, for the report, which opens no network."""
        record = {
            "epochs": self.result.epochs,
            "classes": self.classes,
            "errors": [None if math.isnan(error) else error for error in self.errors],
            "confusion": self.confusion.tolist(),
            "mistakes": [mistake._asdict() for mistake in self.mistakes],
            "pictures": self.pictures,
        }
        with atomic_file(run.class_errors_file) as partial:
            partial.write_text(json.dumps(record))


def class_errors(
    model: nn.Module | Run | str | os.PathLike[str],
    which: Literal["best", "last"] = "last",
    data_root: str | None = None,
    data: str | Data | None = None,
    val_share: float | None = None,
    mistakes: int = 5,
) -> ClassErrors:
    """`evaluate`, and besides what it averages over: each image's prediction against its label, in one pass."""
    network = model if isinstance(model, nn.Module) else load(chosen(model, which))
    tests = data if isinstance(data, Data) else data_of(description_of(network), data, data_root, val_share)
    with _outputs(network) as batches:
        result = evaluate(network, data=tests)
    probability, predicted = torch.cat(batches).softmax(dim=1).max(dim=1)
    source: Any = tests.test  # whose labels are an array, in memory or of files
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
    return ClassErrors(result, names, confusion, worst, pictures)


def _thumbnail(source: Any, place: int) -> str:
    """An image of a test set as a small PNG in base64."""
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
    """The places of the images that were evaluated: files that cannot be decoded are left out."""
    unreadable = getattr(test, "unreadable", ())
    return [n for n in range(len(test)) if not unreadable or test.paths[n] not in unreadable]


@contextmanager
def _outputs(network: nn.Module) -> Iterator[list[Tensor]]:
    """Within, what the network answers to each batch is kept."""
    kept: list[Tensor] = []
    handle = network.register_forward_hook(lambda module, inputs, output: kept.append(output.detach().float().cpu()))
    try:
        yield kept
    finally:
        handle.remove()
