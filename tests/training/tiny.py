"""Networks small enough that a test can train or compile them: LM-ResNet-14 and -8, Shake-Shake-8, a fractal."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stepnet.nets import list_models, register_model
from stepnet.nets.fractalnet import cifar_fractalnet
from stepnet.nets.resnet import cifar_resnet
from stepnet.nets.shakeshake import cifar_shakeshake
from stepnet.training import Recipe, TrainConfig

for name, depth in {"tiny": 14, "tiniest": 8}.items():
    if name not in list_models():
        network = partial(cifar_resnet, depth, pre_activation=True, scheme="lm")
        register_model(name, family="lm_resnet", scheme="lm")(network)
if "tiny_shake" not in list_models():
    register_model("tiny_shake", family="shakeshake")(partial(cifar_shakeshake, 8, 4))
if "tiny_fractal" not in list_models():
    fractal = partial(cifar_fractalnet, 20, widths=(4, 8), drop_path=0.3, global_drop=0.3)
    register_model("tiny_fractal", family="fractalnet", scheme="full_fractal3")(fractal)


class Double(nn.Module):
    """A network in float64, which shows what is rounding and what is not."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.network = cifar_resnet(8, pre_activation=True, scheme="lm", **options).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x.double())


if "tiny_double" not in list_models():
    register_model("tiny_double", family="lm_resnet", scheme="lm")(Double)

RECIPE = Recipe(epochs=2, batch_size=256, lr=0.05, milestones=(1,))


def tiny_config(out: Path, **changes: Any) -> TrainConfig:
    recipe = RECIPE.override(changes.pop("recipe", {}))
    return TrainConfig(**{"model": "tiny"} | changes, recipe=recipe, out=str(out))


def read_all(path: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint."""
    from safetensors.torch import load_file

    return load_file(path)
