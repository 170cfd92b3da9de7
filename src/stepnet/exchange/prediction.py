"""The likeliest classes of pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import nn

from stepnet.errors import UserError
from stepnet.exchange.model_files import description_of
from stepnet.exchange.preprocess import AnyPicture, preprocess


class Likely(NamedTuple):
    """A class and its probability, the softmax of the network's outputs."""

    name: str
    probability: float


def predict(network: nn.Module, pictures: Sequence[AnyPicture], top: int = 5) -> Iterator[list[Likely]]:
    """For each picture its `top` likeliest classes, likeliest first; one picture at a time, whatever their number."""
    description = description_of(network)
    if description.preprocessing is None:
        raise UserError(
            f"{description.model} does not say how a picture becomes its input (channels, size, mean, std): save it "
            "again with stepnet.save(…, preprocessing=…)"
        )
    classes: Sequence[str] = description.classes
    for picture in pictures:
        with torch.inference_mode():
            probabilities = network(preprocess(description.preprocessing, picture)).softmax(1)[0]
        if classes and len(classes) != len(probabilities):
            raise UserError(f"{description.model} has {len(probabilities)} outputs and {len(classes)} names of classes")
        names = classes or [str(index) for index in range(len(probabilities))]
        values, places = probabilities.topk(min(top, len(probabilities)))
        yield [Likely(names[i], p) for p, i in zip(values.tolist(), places.tolist(), strict=True)]
