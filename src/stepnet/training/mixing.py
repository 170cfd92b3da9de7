"""Stronger augmentation of a training batch: RandAugment, mixup and cutmix of torchvision.transforms.v2.

They draw from torch's generator, which the loop seeds for each step: a resumed run sees the same images. RandAugment
(Cubuk et al. 2020) applies two random operations to each image; mixup (Zhang et al. 2018) and cutmix (Yun et al. 2019)
combine two images, and their labels in the same shares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from stepnet.data import Data, Normalisation
from stepnet.errors import UserError
from stepnet.extras import import_extra
from stepnet.training.recipes import Recipe

Mixture = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class BatchMixing:
    """Augments each image of a batch of normalised images [B, C, H, W], then mixes images and labels."""

    augment: Callable[[Tensor], Tensor] | None
    mixture: Mixture | None
    normalise: Normalisation

    @classmethod
    def of(cls, recipe: Recipe, data: Data) -> BatchMixing | None:
        """Return the augmentation of a recipe; None if it has none."""
        if not (recipe.randaugment or recipe.mixup or recipe.cutmix):
            return None
        if len(data.train.shape) != 3 or not data.num_classes:
            raise UserError("randaugment, mixup and cutmix are for images and classes: set them to 0")
        v2 = import_extra("torchvision.transforms.v2")
        kinds = {"MixUp": recipe.mixup, "CutMix": recipe.cutmix}
        mixtures = [getattr(v2, kind)(alpha=a, num_classes=data.num_classes) for kind, a in kinds.items() if a]
        augment = v2.RandAugment(magnitude=recipe.randaugment) if recipe.randaugment else None
        return cls(augment, v2.RandomChoice(mixtures) if mixtures else None, data.normalise)

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return augmented images and their labels, which are shares [B, classes] after mixing."""
        if self.augment is not None:
            images = self._normalised(torch.stack([self.augment(image) for image in self._bytes(images)]))
        if self.mixture is not None and len(images) > 1:
            images, labels = self.mixture(images, labels)
        return images.contiguous(memory_format=torch.channels_last), labels

    def _bytes(self, images: Tensor) -> Tensor:
        mean, std = self._constants(images)
        return (255 * (images * std + mean)).round().clamp(0, 255).to(torch.uint8)

    def _normalised(self, images: Tensor) -> Tensor:
        mean, std = self._constants(images)
        return (images / 255 - mean) / std

    def _constants(self, like: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = (
            torch.tensor(v, device=like.device).view(-1, 1, 1) for v in (self.normalise.mean, self.normalise.std)
        )
        return mean, std
