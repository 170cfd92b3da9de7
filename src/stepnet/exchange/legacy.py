"""Runs made before a checkpoint described itself: the description, put together from the run's folder.

Such a run says what its network is in `config.yaml`. Classes, mean and std are those of its data set, where that is on
the machine; where it is not, the network opens all the same, and does not say how pictures are prepared for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from stepnet.data import Data, get_data
from stepnet.errors import UserError
from stepnet.exchange.model_description import ConversionRecord, ModelDescription, TrainingRecord
from stepnet.exchange.preprocess import prepared_like
from stepnet.exchange.rebuild import fitted_options
from stepnet.files import read_file
from stepnet.schema import LARGEST, read_as, read_yaml
from stepnet.tensors import Tensors


class OldConfig(msgspec.Struct):
    """What is read of an old `config.yaml`."""

    model: str
    data: str
    recipe: dict[str, Any]
    scheme: str | None = None
    seed: int = 0
    data_root: str | None = None


def describe_old_run(path: Path, weights: Tensors, header: Mapping[str, str]) -> ModelDescription:
    """The description of a checkpoint of a run, whose header has none."""
    folder, config = path.parent, _config(path.parent / "config.yaml")
    epochs = _epochs(header, best=path.name == "best.safetensors")
    data = _data(config)
    environment = partial(_environment, folder / "environment.yaml")
    options = fitted_options(config.model, weights)
    conversion = None
    if "/" in config.model:
        conversion = None if config.scheme is None else ConversionRecord(scheme=config.scheme, stages=())
    elif config.scheme is not None:
        options["scheme"] = config.scheme
    if config.recipe.get("stochastic_depth") is not None:
        mode = config.recipe.get("stochastic_mode", "batch")
        options["stochastic_depth"] = {"survival": config.recipe["stochastic_depth"], "mode": mode}
    return ModelDescription(
        model=config.model,
        options=options,
        conversion=conversion,
        classes=() if data is None else data.train.classes,
        preprocessing=None if data is None else prepared_like(data),
        training=TrainingRecord(
            data=config.data,
            epochs=epochs,
            recipe=config.recipe,
            seed=config.seed,
            test_error=_test_error(folder / "metrics.jsonl", epochs),
            command=environment("command"),
            revision=environment("revision"),
        ),
    )


def _config(path: Path) -> OldConfig:
    what = f"{path}: not the config of a stepnet run"
    return read_as(OldConfig, read_yaml(path, what), what)


def _data(config: OldConfig) -> Data | None:
    try:
        return get_data(config.data, config.data_root)
    except UserError:
        return None


def _epochs(header: Mapping[str, str], best: bool) -> int:
    """How many were over; the best weights were written before their epoch was counted as done."""
    try:
        return int(json.loads(header["progress"])["epoch"]) + best
    except (KeyError, ValueError, TypeError):
        return 0


def _test_error(path: Path, epochs: int) -> float | None:
    """After so many epochs."""
    try:
        line = json.loads(read_file(path, LARGEST).splitlines()[epochs - 1])
        return float(line["test_error"]) if line["epoch"] == epochs - 1 else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _environment(path: Path, key: str) -> str:
    found = read_yaml(path, f"{path}: not the file of a stepnet run") if path.exists() else {}
    return str(found.get(key, "")) if isinstance(found, dict) else ""
