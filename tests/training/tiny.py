"""A network small enough that a test can train it: LM-ResNet-8 on the digits."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from stepnet.nets import list_models, register_model
from stepnet.nets.resnet import cifar_resnet
from stepnet.training import Recipe, TrainConfig

if "tiny" not in list_models():
    register_model("tiny", family="lm_resnet", scheme="lm")(partial(cifar_resnet, 14, pre_activation=True, scheme="lm"))

RECIPE = Recipe(epochs=2, batch_size=256, lr=0.05, milestones=(1,))


def tiny_config(out: Path, **changes: Any) -> TrainConfig:
    recipe = RECIPE.override(changes.pop("recipe", {}))
    return TrainConfig(model="tiny", recipe=recipe, out=str(out), **changes)


def read_all(path: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint."""
    from safetensors.torch import load_file

    return load_file(path)
