"""Run folders as a training run leaves them, made without training."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import pytest
import yaml

from stepnet import create_model, list_models
from stepnet.exchange.model_description import Preprocessing, describe_network
from stepnet.exchange.model_files import write_model
from stepnet.training.config import TrainConfig
from stepnet.training.recipes import Recipe
from stepnet.training.run import environment

environment_here = cache(environment)  # it asks git, twice
LAYERS = ("stages.0.blocks.1", "stages.0.blocks.2", "stages.2.blocks.1")


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Path]:
    """`write_run(model, seed=0, errors=(…), epochs=3, …)`: the folder of a run with these test errors."""
    return partial(run_with_errors, tmp_path)


def run_with_errors(
    root: Path,
    model: str = "lm_resnet20",
    seed: int = 0,
    errors: Sequence[float] = (50.0, 20.0, 10.0),
    epochs: int | None = None,
    ks: Sequence[float] = (0.1, -0.2, -0.9),
    name: str | None = None,
    **config: object,
) -> Path:
    """A folder in `root`, as a run with these test errors leaves it."""
    folder = root / (name or f"{model.replace('/', '-')}-seed{seed}")
    folder.mkdir(parents=True)
    recipe = Recipe(epochs=len(errors) if epochs is None else epochs)
    TrainConfig(model=model, recipe=recipe, seed=seed, out=str(folder), **config).write(folder / "config.yaml")
    lines = [
        {
            "epoch": n,
            "loss": error / 40,
            "error": error + 1,
            "test_loss": error / 30 if math.isfinite(error) else error,
            "test_error": error,
            "lr": 0.1,
            "images_per_second": 100.0 + n,
            "seconds": 10.0,
            "k": {layer: (n + 1) * k for layer, k in zip(LAYERS, ks, strict=False)} if "lm" in model else {},
        }
        for n, error in enumerate(errors)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    recorded = {**environment_here(), "command": f"stepnet train {model} --seed {seed}"}
    (folder / "environment.yaml").write_text(yaml.safe_dump(recorded))
    if errors and model in list_models():
        (folder / "model.safetensors").write_bytes(weights_for_digits(model))
    return folder


@cache
def weights_for_digits(name: str) -> bytes:
    """The model file of a run on digits."""
    network = create_model(name, num_classes=10, in_channels=1)
    images = Preprocessing(channels=1, image_size=8, resize=8, mean=(0.0,), std=(1.0,))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        write_model(path, network.state_dict(), describe_network(network, preprocessing=images))
        return path.read_bytes()
