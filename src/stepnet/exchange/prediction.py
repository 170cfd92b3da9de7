"""Preprocess pictures for a network and predict their classes; continue a text, token by token."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from stepnet.arguments import Count, NotNegative, Seed, checked
from stepnet.data import (
    BYTES,
    MARGIN,
    Data,
    DatasetImages,
    Normalisation,
    Photos,
    centre_view,
    encode,
    read_view,
    view_of,
)
from stepnet.errors import UserError
from stepnet.exchange.model_description import Preprocessing, description_of
from stepnet.nets import training_mode
from stepnet.randomness import Stream, random_words, uniform

AnyPicture: TypeAlias = "str | os.PathLike[str] | Image.Image | NDArray[np.uint8]"


def preprocess(how: Preprocessing, pictures: AnyPicture | Sequence[AnyPicture]) -> Tensor:
    """Return a tensor [N, C, H, W] of pictures: paths, PIL images, or uint8 arrays [H, W], [H, W, C]."""
    single = isinstance(pictures, str | os.PathLike | Image.Image | np.ndarray)
    several: Sequence[AnyPicture] = [pictures] if single else pictures  # type: ignore[list-item, assignment]
    if not several:
        raise UserError("no pictures: expected one or more")
    if how.channels not in (1, 3):
        raise UserError(f"the network takes {how.channels} channels: a picture has 1 or 3; give it tensors")
    return Normalisation(how.mean, how.std)(np.stack([_view(how, picture) for picture in several]))


def preprocessing_of(data: Data) -> Preprocessing | None:
    """Return the preprocessing of a data set's test images, or None where a torch Dataset does its own."""
    if len(data.test.shape) != 3:
        return None
    size = data.image_size
    if data.test.shape[0] != data.test.shape[1] or (isinstance(data.test, DatasetImages) and not data.test.of_bytes):
        return None
    resize = round(MARGIN * size) if isinstance(data.test, Photos) else size
    mean, std = data.normalise.mean, data.normalise.std
    return Preprocessing(channels=data.in_channels, image_size=size, resize=resize, mean=mean, std=std)


class Prediction(NamedTuple):
    """A class and its probability, the softmax of the network's outputs."""

    name: str
    probability: float


@checked
def predict(network: nn.Module, pictures: Sequence[AnyPicture], top: Count = 5) -> Iterator[list[Prediction]]:
    """Yield the `top` likeliest classes of each picture, likeliest first; pictures are read one at a time."""
    description = description_of(network)
    if getattr(network, "context", None) is not None:
        raise UserError(f"{description.model} reads text, not pictures: continue a text with `stepnet generate`")
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
        yield [Prediction(names[i], p) for p, i in zip(values.tolist(), places.tolist(), strict=True)]


def _view(how: Preprocessing, picture: AnyPicture) -> NDArray[np.uint8]:
    """Resize the shorter side to `resize` pixels and crop the centre square."""
    look = centre_view(how.image_size, how.resize / how.image_size)
    if isinstance(picture, str | os.PathLike):
        pixels = read_view(Path(picture), how.image_size, look)
    else:
        pixels = view_of(picture if isinstance(picture, Image.Image) else _of_array(picture), how.image_size, look)
    if how.channels == 1:
        return np.asarray(Image.fromarray(pixels).convert("L"))[..., np.newaxis]
    return pixels


def _of_array(pixels: object) -> Image.Image:
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
        kind = str(pixels.dtype) if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise UserError(f"a picture is a {kind}: expected a path, a PIL image or uint8 [height, width, channels]")
    return Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)


@checked
def generate(
    network: nn.Module, prompt: str = "\n", length: Count = 500, temperature: NotNegative = 0.8, seed: Seed = 0
) -> Iterator[str]:
    """Yield a continuation of `prompt`, piece by piece: `length` tokens, drawn by the network's probabilities.

    The logits are divided by `temperature`; at 0 every token is the likeliest one. The network sees the last `context`
    tokens, and nothing is cached between them. It is evaluated in evaluation mode; each module keeps its training flag.
    The draws are a function of the seed.
    """
    description = description_of(network)
    context, classes = getattr(network, "context", None), description.classes
    if context is None or not classes:
        raise UserError(f"{description.model} does not continue text: expected a GPT that was trained on text")
    if not prompt:
        raise UserError("the prompt is empty: expected at least one character")
    tokens = torch.from_numpy(encode(prompt, classes, "the prompt"))
    draws = uniform(random_words(length, seed, Stream.TOKENS)).tolist()
    return _continuation(network, tokens, context, classes, draws, temperature)


def _continuation(
    network: nn.Module, tokens: Tensor, context: int, classes: tuple[str, ...], draws: list[float], temperature: float
) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    like = next(network.parameters())
    tokens = tokens[None].to(like.device)
    for draw in draws:
        with training_mode(network, False), torch.inference_mode():  # flags are restored before each token is yielded
            logits = network(tokens[:, -context:])[0, -1].cpu().double()
        token = draw_token(logits, draw, temperature)
        tokens = torch.cat([tokens[:, -context:], tokens.new_tensor([[token]])], dim=1)
        yield decoder.decode(bytes([token])) if classes == BYTES else classes[token]


def draw_token(logits: Tensor, draw: float, temperature: float) -> int:
    """Return the token at which the distribution function of `softmax(logits / temperature)` exceeds `draw`."""
    if temperature == 0:
        return int(logits.argmax())
    below = ((logits - logits.max()) / temperature).softmax(0).cumsum(0)  # finite at any temperature
    return min(int(torch.searchsorted(below, draw * below[-1], right=True)), len(logits) - 1)
