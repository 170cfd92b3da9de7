"""Networks and runs to show, made without training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from stepnet import create_model
from stepnet.exchange.model_description import TrainingRecord, describe_network
from stepnet.exchange.model_files import write_model
from training import tiny  # registers small networks
from training.made_runs import write_run

__all__ = ["write_run"]


@pytest.fixture
def write_model_of_digits(tmp_path: Path) -> Callable[..., Path]:
    """`write_model_of_digits(name, k=…)`: the folder of a small network that says it was trained on digits."""
    return lambda name="tiny", k=-0.3: trained_on_digits(tmp_path / f"{name}-{k}", name, k)


def trained_on_digits(folder: Path, name: str = "tiny", k: float = -0.3) -> Path:
    """The folder of a network of `training.tiny` that says it was trained on digits; its `k` are all the same."""
    torch.manual_seed(0)
    assert tiny.RECIPE
    network = create_model(name, in_channels=1, **({"k": k} if name.startswith("tin") else {}))
    folder.mkdir(parents=True)
    described = describe_network(network, training=TrainingRecord(data="digits", epochs=1))
    write_model(folder / "model.safetensors", network.state_dict(), described)
    return folder
