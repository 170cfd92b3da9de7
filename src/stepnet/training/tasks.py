"""Tasks: a task defines the loss of a network, the sums over an epoch, and the metrics computed from them.

The loop, the run's folder, comparisons and the report use any task alike. Classification and next-token prediction are
built in. A task of your own is a class:

    @register_task("regression")
    class Regression(Task):
        metrics = (Metric("rmse"),)

        def loss(self, outputs, targets):
            return F.mse_loss(outputs, targets, reduction="sum")

        def figures(self, means):
            return {"rmse": math.sqrt(means["loss"])}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeVar

from stepnet.arguments import checked
from stepnet.errors import UserError
from stepnet.registry import Registry

if TYPE_CHECKING:  # a report reads the records of tasks without importing torch
    from torch import Tensor

    from stepnet.data import Data
    from stepnet.training.recipes import Recipe

TOP = 5  # ImageNet is also evaluated by its top-5 error


@checked
@dataclass(frozen=True)
class Metric:
    """A metric of an epoch besides the loss: `name` on the training set, `test_name` on the test set."""

    name: str
    title: str = ""  # as it is printed; by default its name
    unit: str = ""
    higher_is_better: bool = False
    tested_only: bool = False  # whether it is measured on the test set only

    def __str__(self) -> str:
        return self.title or self.name

    @property
    def heading(self) -> str:
        """The title with the unit: `error (%)`."""
        return f"{self} ({self.unit})" if self.unit else str(self)

    @property
    def digits(self) -> int:
        """Digits after the decimal point: two for per cent."""
        return 2 if self.unit == "%" else 4

    def show(self, value: float) -> str:
        """Format a value: `12.50%`, `0.1234`."""
        return f"{value:.{self.digits}f}{self.unit}"

    def better(self, value: float, than: float) -> bool:
        """Whether `value` is better than `than`."""
        return value > than if self.higher_is_better else value < than

    def best(self, values: Sequence[float]) -> float:
        """Return the best of the values."""
        return max(values) if self.higher_is_better else min(values)


@dataclass(frozen=True)
class TaskRecord:
    """The task in the config of a run, from which its metrics are read without the task's code."""

    name: str = "classification"
    items: str = "images"  # the name of what a batch holds, in the plural
    metrics: tuple[Metric, ...] = (
        Metric("error", unit="%"),
        Metric("top5_error", "top-5 error", unit="%", tested_only=True),  # where there are more than five classes
    )

    @property
    def metric(self) -> Metric:
        """The first metric, by which the best epoch is chosen and networks are compared."""
        return self.metrics[0]

    def best_epoch(self, lines: Sequence[Mapping[str, float]]) -> int:
        """Return the place of the best epoch among some."""
        choices = [self.choice(line) for line in lines]
        return choices.index(self.metric.best(choices))

    def choice(self, line: Mapping[str, float]) -> float:
        """Return the value by which an epoch is chosen: the metric on the validation set, else on the test set."""
        tested = line[f"test_{self.metric.name}"]
        return line.get(f"val_{self.metric.name}", tested)

    @property
    def speed(self) -> str:
        """The field of the speed, such as `images_per_second`."""
        return f"{self.items}_per_second"

    def names(self) -> Iterator[str]:
        """Yield the names of the metrics in a line of metrics.jsonl."""
        for metric in self.metrics:
            if not metric.tested_only:
                yield metric.name
            yield f"test_{metric.name}"


class Task:
    """The loss, sums and metrics of a network on a data set."""

    name: ClassVar[str]
    items: ClassVar[str] = "items"
    metrics: tuple[Metric, ...]  # one or more; the best epoch is chosen by the first
    of_classes: ClassVar[bool] = False  # whether targets are class numbers

    def __init__(self, data: Data) -> None:
        self.data = data

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss summed over the items of a batch, a scalar; training minimises its mean over items."""
        raise NotImplementedError

    def training_loss(self, outputs: Tensor, targets: Tensor, recipe: Recipe) -> Tensor:
        """Return the loss in training, where a recipe may smooth labels; by default `loss`."""
        return self.loss(outputs, targets)

    def sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return other sums over the items of a batch, by name; by default none."""
        return {}

    def test_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the sums for the test set; by default `sums`."""
        return self.sums(outputs, targets)

    def figures(self, means: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics by name, from the means over items of `loss` and of the sums."""
        raise NotImplementedError

    def check_outputs(self, outputs: Tensor) -> None:
        """Raise for outputs of a shape that the loss does not accept, before training; by default never."""

    @property
    def record(self) -> TaskRecord:
        """The record for the run's config."""
        return TaskRecord(self.name, self.items, self.metrics)


AnyTask = TypeVar("AnyTask", bound=type[Task])
TASKS: Registry[type[Task]] = Registry("task")


@checked
def register_task(name: str) -> Callable[[AnyTask], AnyTask]:
    """Register a task class under `name`, for `stepnet.train(…, task=name)` and for data sets of this task."""

    def add(kind: AnyTask) -> AnyTask:
        kind.name = name
        TASKS.add(name, kind)
        return kind

    return add


@register_task("classification")
class Classification(Task):
    """Cross-entropy of logits [batch, classes]; the error and, above five classes, the top-5 error in per cent."""

    items = "images"
    of_classes = True

    def __init__(self, data: Data) -> None:
        super().__init__(data)
        every = TaskRecord().metrics
        self.metrics = every if data.num_classes > TOP else every[:1]

    def check_outputs(self, outputs: Tensor) -> None:
        shape, classes = tuple(outputs.shape), self.data.num_classes
        if len(shape) != 2:
            raise UserError(f"outputs of shape {list(shape)}: expected one for each class, [{shape[0]}, {classes}]")
        if shape[1] < classes:
            raise UserError(
                f"{shape[1]} outputs, and labels from 0 to {classes - 1}: expected {classes} outputs or more; "
                "change its last layer, or number the labels from 0"
            )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return summed_cross_entropy(outputs, targets)

    def training_loss(self, outputs: Tensor, targets: Tensor, recipe: Recipe) -> Tensor:
        weight = self.class_weights.to(outputs) if recipe.class_weights == "balanced" else None
        return summed_cross_entropy(outputs, targets, recipe.label_smoothing, weight)

    @cached_property
    def class_weights(self) -> Tensor:
        """`N / (C n_c)` for a class with n_c of N training images, of C classes: the mean over images is 1."""
        import torch

        labels = getattr(self.data.train, "labels", None)
        if labels is None:
            raise UserError("class_weights = 'balanced': the labels of this data set are not known; give it `targets`")
        counts = torch.bincount(torch.as_tensor(labels), minlength=self.data.num_classes)
        return len(labels) / (len(counts) * counts.clamp(min=1).double())

    def sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        labels = targets if targets.ndim == 1 else targets.argmax(1)  # of mixed images, that of the largest share
        return {"wrong": (outputs.argmax(1) != labels).sum()}

    def test_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        sums = self.sums(outputs, targets)
        if len(self.metrics) > 1:
            sums["missed"] = (outputs.topk(TOP).indices != targets[:, None]).all(1).sum()
        return sums

    def figures(self, means: Mapping[str, float]) -> dict[str, float]:
        metrics = {"error": 100 * means["wrong"]}
        return metrics | ({"top5_error": 100 * means["missed"]} if "missed" in means else {})


@register_task("next_token")
class NextToken(Task):
    """Cross-entropy of the next token, in nats for each token: logits [batch, time, tokens], targets [batch, time]."""

    items = "sequences"

    def __init__(self, data: Data) -> None:
        super().__init__(data)
        bytewise = data.train.classes[:1] == ("0x00",)
        self.metrics = (
            Metric("loss"),
            Metric("bits", f"bits per {'byte' if bytewise else 'character'}"),
            Metric("perplexity"),
        )

    def loss(self, outputs: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Return the mean over the tokens of a sequence, summed over sequences."""
        return summed_cross_entropy(outputs.flatten(0, 1), targets.flatten(), label_smoothing) / targets.shape[1]

    def training_loss(self, outputs: Tensor, targets: Tensor, recipe: Recipe) -> Tensor:
        return self.loss(outputs, targets, recipe.label_smoothing)

    def figures(self, means: Mapping[str, float]) -> dict[str, float]:
        loss = means["loss"]
        return {"bits": loss / math.log(2), "perplexity": math.exp(min(loss, 700.0))}


def summed_cross_entropy(
    logits: Tensor, targets: Tensor, label_smoothing: float = 0.0, weight: Tensor | None = None
) -> Tensor:
    """Return the sum of `-log p` of the targets; `weight` has a factor for each class."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits, targets, weight, reduction="sum", label_smoothing=label_smoothing)
