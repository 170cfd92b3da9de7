"""Open a network with test images of its data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stepnet.conversion import convert, is_foreign, load_foreign
from stepnet.data import Text, evaluation_batches, get_data
from stepnet.errors import UserError
from stepnet.exchange import description_of, load
from stepnet.nets import create_model, split_tag
from stepnet.training import data_of, read_label, write_label

UNTRAINED_DATA = "digits"  # what a network that was never trained is shown


@dataclass(frozen=True)
class OpenedNetwork:
    """A network in evaluation mode, and images with their labels."""

    title: str
    network: nn.Module
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def some_of_each(self, classes: int = 5, each: int = 3) -> tuple[Tensor, list[str]]:
        """Return a few images of the first few classes, and the names of their classes."""
        by_class = (torch.nonzero(self.labels == label).flatten()[:each].tolist() for label in range(classes))
        chosen = [place for places in by_class for place in places]
        if not chosen:
            raise UserError(
                f"none of the {len(self.labels)} images is of the first {classes} classes: take more images"
            )
        return self.images[chosen], [self.classes[int(self.labels[place])] for place in chosen]


def is_trained(place: str) -> bool:
    """Whether this names a trained network: a run, a file, or `NAME.TAG` of weights in the package."""
    return Path(place).exists() or split_tag(read_label(place).model)[1] is not None


def open_network(place: str, scheme: str | None = None, **options: Any) -> tuple[str, nn.Module]:
    """Return a title and the network of a run, a file or `NAME.TAG`; for a label, a new network of fixed seed.

    One of another library gets the scheme, `lm` by default; `options` are those of `create_model`.
    """
    if is_trained(place):
        if scheme is not None:
            raise UserError(f"{place} is trained and has its own scheme: leave out --scheme {scheme}")
        network = load(place)
        described = description_of(network)
        return described.model if described.scheme is None else f"{described.model}:{described.scheme}", network
    torch.manual_seed(0)  # a new network's k are drawn at random
    label = read_label(place).under(scheme)
    if is_foreign(place):
        scheme = label.scheme or "lm"
        network = convert(load_foreign(label.model, **options | label.kwargs), scheme, inplace=True)
        return write_label(label._replace(scheme=scheme)), network
    return write_label(label), create_model(label.model, **options | label.options)


def open_with_images(
    place: str, count: int = 1000, data_root: str | None = None, why: str = "states are shown of images"
) -> OpenedNetwork:
    """Return the network of a run, a file or `NAME.TAG`, and the first `count` test images of its data set.

    A name of `create_model` gives an untrained network, which is shown digits. A network of text is refused: `why`
    says what the images are for.
    """
    if is_trained(place):
        title, network = open_network(place)
        data = data_of(description_of(network), root=data_root)
    else:
        data = get_data(UNTRAINED_DATA)
        _, network = open_network(place, num_classes=data.num_classes, in_channels=data.in_channels)
        title = f"{place}, untrained"
    if isinstance(data.train, Text):
        raise UserError(f"{title} was trained on text, and {why}")
    images, labels = next(iter(evaluation_batches(data, min(count, len(data.test))).epoch()))
    return OpenedNetwork(title, network.eval(), images.contiguous(), labels, data.train.classes)
