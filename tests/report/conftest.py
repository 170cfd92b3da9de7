"""Run folders as a training run leaves them, made without training."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from stepnet.training.config import TrainConfig
from stepnet.training.recipes import Recipe
from stepnet.training.run import environment as environment_here

LAYERS = ("stages.0.blocks.1", "stages.0.blocks.2", "stages.2.blocks.1")


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Path]:
    """`write_run(model, seed=0, errors=(…), epochs=3, …)`: the folder of a run with these test errors."""

    def write(
        model: str = "lm_resnet20",
        seed: int = 0,
        errors: Sequence[float] = (50.0, 20.0, 10.0),
        epochs: int | None = None,
        ks: Sequence[float] = (0.1, -0.2, -0.9),
        name: str | None = None,
        **config: object,
    ) -> Path:
        folder = tmp_path / (name or f"{model.replace('/', '-')}-seed{seed}")
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
        environment = {**environment_here(), "command": f"stepnet train {model} --seed {seed}"}
        (folder / "environment.yaml").write_text(yaml.safe_dump(environment))
        return folder

    return write
