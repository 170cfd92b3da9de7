"""Networks small enough that a test can train or compile them: two LM-ResNets, Shake-Shake-8, a fractal."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from stepnet.nets import list_models, register_model
from stepnet.nets.blocks import basic
from stepnet.nets.fractalnet import cifar_fractalnet
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.nets.resnet import cifar_resnet
from stepnet.nets.shakeshake import cifar_shakeshake
from stepnet.nets.trajectories import KineticCost
from stepnet.training import Recipe, TrainConfig

# The smallest backbone whose stages own a k each under LM: their second steps.
SMALLEST = Backbone(basic, (4, 8), (2, 2), stem_width=4, pre_activation=True)


class Double(ResidualNetwork):
    """A network in float64, which shows what is rounding and what is not."""

    def __init__(self, scheme: str = "lm", **options: Any) -> None:
        super().__init__(SMALLEST, scheme, **options)
        self.double()

    def forward(self, x: torch.Tensor, noise: Any = None, *, cost: KineticCost | None = None) -> torch.Tensor:
        return super().forward(x.double(), noise, cost=cost)


for name, build in {
    "tiny": partial(cifar_resnet, 14, pre_activation=True, scheme="lm"),
    "tiniest": partial(ResidualNetwork, SMALLEST, scheme="lm"),
    "tiny_double": Double,
}.items():
    if name not in list_models():
        register_model(name, family="lm_resnet", scheme="lm")(build)
if "tiny_shake" not in list_models():
    register_model("tiny_shake", family="shakeshake")(partial(cifar_shakeshake, 8, 4))
if "tiny_fractal" not in list_models():
    fractal = partial(cifar_fractalnet, 20, widths=(4, 8), drop_path=0.3, global_drop=0.3)
    register_model("tiny_fractal", family="fractalnet", scheme="full_fractal3")(fractal)

RECIPE = Recipe(epochs=2, batch_size=256, lr=0.05, milestones=(1,))


def tiny_config(out: Path, **changes: Any) -> TrainConfig:
    recipe = RECIPE.override(changes.pop("recipe", {}))
    return TrainConfig(**{"model": "tiny"} | changes, recipe=recipe, out=str(out))


def read_all(path: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint."""
    from safetensors.torch import load_file

    return load_file(path)
