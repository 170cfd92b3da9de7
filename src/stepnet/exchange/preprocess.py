"""From a picture, wherever it stands, to what a network reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from stepnet.data import Data
from stepnet.data.normalise import Normalisation
from stepnet.errors import UserError, first_line
from stepnet.exchange.description import Preprocessing

FORMATS = ("JPEG", "PNG", "WEBP", "BMP")  # no other decoder is started, whatever a file is called
LONGEST = 100  # how much longer than its shorter side a picture may be: the resized one must fit into memory

Picture: TypeAlias = "str | os.PathLike[str] | Image.Image | NDArray[np.uint8]"


def preprocess(how: Preprocessing, pictures: Picture | Sequence[Picture]) -> Tensor:
    """[N, C, H, W] of one or several pictures: paths, PIL images, or uint8 arrays [H, W], [H, W, C]."""
    single = isinstance(pictures, str | os.PathLike | Image.Image | np.ndarray)
    several: Sequence[Picture] = [pictures] if single else pictures  # type: ignore[list-item, assignment]
    if not several:
        raise UserError("no pictures: expected one or more")
    pixels = np.stack([_view(how, picture) for picture in several])
    return Normalisation(how.mean, how.std)(pixels)


def prepared_like(data: Data) -> Preprocessing:
    """How the test images of a data set are prepared."""
    size = data.image_size
    return Preprocessing(
        channels=data.in_channels,
        image_size=size,
        resize=getattr(data.test, "resize", size),
        mean=data.mean,
        std=data.std,
    )


def _view(how: Preprocessing, picture: Picture) -> NDArray[np.uint8]:
    """The evaluation view: the shorter side to `resize` pixels, then the square in the middle.

    A picture that has the network's size already is taken as it is.
    """
    if isinstance(picture, str | os.PathLike):
        image = open_picture(Path(picture))
    elif isinstance(picture, Image.Image):
        image = picture
    else:
        image = _of_array(picture)
    image = image.convert("L" if how.channels == 1 else "RGB")
    if how.channels not in (1, 3):
        raise UserError(f"the network takes {how.channels} channels: a picture has 1 or 3; give it tensors")
    width, height = image.size
    if (height, width) != (how.image_size, how.image_size):
        if max(width, height) > LONGEST * min(width, height):
            raise UserError(f"a picture of {width} x {height} pixels: no side may be {LONGEST} times the other")
        short = min(width, height)
        image = image.resize(
            (int(how.resize * width / short), int(how.resize * height / short)), Image.Resampling.BILINEAR
        )
        left, top = (round((side - how.image_size) / 2) for side in image.size)
        image = image.crop((left, top, left + how.image_size, top + how.image_size))
    pixels: NDArray[np.uint8] = np.asarray(image, np.uint8).reshape(how.image_size, how.image_size, how.channels)
    return pixels


def open_picture(path: Path) -> Image.Image:
    """The decoded picture, turned as its camera says; what is none is told in one line."""
    try:
        if not path.is_file():
            raise UserError(f"{path}: {'not a picture' if path.exists() else 'no such picture'}")
        with Image.open(path, formats=FORMATS) as file:
            return ImageOps.exif_transpose(file.copy())
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is no picture that can be read ({first_line(error)}); expected {FORMATS}") from None


def _of_array(pixels: object) -> Image.Image:
    array = pixels.numpy() if isinstance(pixels, torch.Tensor) else pixels
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim not in (2, 3):
        kind = (
            f"{array.dtype} array of {array.ndim} dimensions" if isinstance(array, np.ndarray) else type(array).__name__
        )
        raise UserError(f"a picture is a {kind}: expected a path, a PIL image or uint8 [height, width, channels]")
    return Image.fromarray(array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array)
