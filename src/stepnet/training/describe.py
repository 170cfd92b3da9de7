"""What the files of a run say of its network."""

from __future__ import annotations

from dataclasses import asdict

from torch import nn

from stepnet.data import Data
from stepnet.exchange import ModelDescription, TrainingRecord, describe_network, preprocessing_of
from stepnet.nets import coefficients
from stepnet.training.config import TrainConfig
from stepnet.training.run import EpochMetrics, environment
from stepnet.training.tasks import TaskRecord


def describe_run(config: TrainConfig, data: Data, network: nn.Module) -> ModelDescription:
    """The description of a run's network at its beginning."""
    here = environment()
    training = TrainingRecord(
        data=config.data,
        val_share=config.val_share,
        task=config.task.name if config.task else TaskRecord().name,
        epochs=0,
        recipe=asdict(config.recipe),
        seed=config.seed,
        command=here["command"],
        revision=here["revision"],
    )
    return describe_network(network, data.train.classes, preprocessing_of(data), training)


def describe_progress(
    start: ModelDescription,
    network: nn.Module,
    epochs: int,
    line: EpochMetrics | None = None,
) -> ModelDescription:
    """The description after so many epochs, with the figures on the test set if these are the weights that had them."""
    assert start.training is not None
    tested = {name.removeprefix("test_"): value for name, value in (line or {}).items() if name.startswith("test_")}
    training = start.training.changed(
        epochs=epochs, test_error=tested.pop("error", None), top5_error=tested.pop("top5_error", None), tested=tested
    )
    return start.changed(training=training, k=coefficients(network))
