"""ViT: a transformer on the patches of an image, with the blocks of `stepnet.nets.gpt` (Dosovitskiy et al. 2021).

The plain form of Beyer, Zhai and Kolesnikov (2022): fixed positions by sines and cosines, no class token, the mean over
patches before the classifier. It therefore takes images of any size that its patches divide.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from stepnet.arguments import Count, CountFromZero, checked
from stepnet.errors import UserError
from stepnet.nets.bounds import BoundOption
from stepnet.nets.early_exit import EarlyExit, early_exit
from stepnet.nets.gpt import Transformer
from stepnet.nets.model_registry import register_family
from stepnet.nets.options import Depths, StepSizes
from stepnet.schemes import Scheme

BASE = 10_000.0  # the ratio of the longest to the shortest wavelength of positions


class ViT(Transformer):
    """Images [batch, channels, height, width] to logits, by patches of `patch` x `patch` pixels."""

    @checked
    def __init__(
        self,
        layers: Count,
        width: Count,
        scheme: str | Scheme = "euler",
        num_classes: CountFromZero = 10,
        in_channels: Count = 3,
        heads: Count | None = None,
        patch: Count = 4,
        dt: StepSizes = 1,
        k: float | None = None,
        k_bound: BoundOption = None,
        depths: Depths | None = None,
    ) -> None:
        super().__init__(num_classes, in_channels, scheme)
        if width % 4:
            raise UserError(f"width {width}: expected a multiple of 4, for sines and cosines of two coordinates")
        self.reduction = patch
        self.stem = nn.Conv2d(in_channels, width, patch, stride=patch)
        self.make_layers(layers, width, heads, dt, k, k_bound, depths, rotary=False, causal=False)
        nn.init.trunc_normal_(self.stem.weight, std=(in_channels * patch**2) ** -0.5)
        self.reset_classifier(num_classes)

    def forward_features(self, x: Tensor, *, exit: float | EarlyExit | None = None) -> Tensor:
        """Return the last states of the patches, normalised: [batch, width, rows, columns]."""
        self.check_input(x)
        patches = self.stem(x)
        rows, columns = patches.shape[2:]
        u = patches.flatten(2).transpose(1, 2) + positions(rows, columns, self.num_features).to(patches)
        last = self.norm(self.stages[0](u, exit=early_exit(exit)))
        return cast(Tensor, last.transpose(1, 2).unflatten(2, (rows, columns)))

    def check_input(self, x: Tensor) -> None:
        """Raise for images of a size that the patches do not divide."""
        super().check_input(x)
        if any(side % self.reduction for side in x.shape[2:]):
            size = " x ".join(map(str, x.shape[2:]))
            raise UserError(f"image of {size} pixels: expected multiples of the patch, {self.reduction}")


def positions(rows: int, columns: int, width: int) -> Tensor:
    """Return [rows * columns, width]: sines and cosines of each coordinate, of wavelengths 2 pi to 10000 * 2 pi."""
    quarter = width // 4
    frequencies = BASE ** -(torch.arange(quarter) / max(1, quarter - 1))
    row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    angles = [place.flatten()[:, None] * frequencies for place in (row, column)]
    return torch.cat([part for angle in angles for part in (angle.sin(), angle.cos())], dim=1)


@register_family(r"vit(\d{1,4})x(\d{1,5})", example="vit6x48", family="vit")
def vit(layers: int, width: int, **options: Any) -> ViT:
    """Build a ViT by its number of layers and its width: `vit6x48`."""
    return ViT(layers, width, **options)
