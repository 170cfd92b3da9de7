"""A network to look at, with test images of its own data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from stepnet.data import Data, evaluation_batches, get_data
from stepnet.errors import UserError
from stepnet.exchange import load
from stepnet.exchange.model_files import description_of
from stepnet.nets import create_model
from stepnet.nets.pretrained import split_tag

UNTRAINED_DATA = "digits"  # what a network that was never trained is shown


@dataclass(frozen=True)
class Specimen:
    """A network in evaluation mode, and images with their labels."""

    title: str
    network: nn.Module
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def some_of_each(self, classes: int = 5, each: int = 3) -> tuple[Tensor, list[str]]:
        """A few images of the first few classes, and the names of their classes."""
        chosen = [
            place for label in range(classes) for place in torch.nonzero(self.labels == label).flatten()[:each].tolist()
        ]
        if not chosen:
            raise UserError(
                f"none of the {len(self.labels)} images is of the first {classes} classes: take more images"
            )
        return self.images[chosen], [self.classes[int(self.labels[place])] for place in chosen]


def is_trained(place: str) -> bool:
    """Whether it is the place of a trained network: a run, a file, or `NAME.TAG` of the weights that come along."""
    return Path(place).exists() or split_tag(place)[1] is not None


def specimen(place: str, count: int = 1000, data_root: str | None = None) -> Specimen:
    """The network of a run, a file or `NAME.TAG`, and the first `count` test images of the data it was trained on.

    A name of `create_model` gives an untrained network, which is shown digits.
    """
    if not is_trained(place):
        data = get_data(UNTRAINED_DATA)
        torch.manual_seed(0)
        network: nn.Module = create_model(place, num_classes=data.num_classes, in_channels=data.in_channels)
        title = f"{place}, untrained"
    else:
        network = load(place)
        described = description_of(network)
        title = described.model if described.scheme is None else f"{described.model}:{described.scheme}"
        if described.training is None:
            raise UserError(f"{place} does not say on which data it was trained: there are no images to show it")
        size = None if described.preprocessing is None else described.preprocessing.image_size
        data = _data(described.training.data, data_root, size, described.training.val_share)
    images, labels = next(iter(evaluation_batches(data, min(count, len(data.test))).epoch()))
    return Specimen(title, network.eval(), images.contiguous(), labels, data.train.classes)


def _data(name: str, root: str | None, size: int | None, val_share: float | None) -> Data:
    folder = Path(name).is_dir()
    return get_data(name, root, image_size=size if folder else None, val_share=val_share)
