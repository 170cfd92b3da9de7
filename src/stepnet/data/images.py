"""Read one image file as the pixels that a network sees.

A file is opened only in the formats named here: Pillow knows forty others, one of which starts another program. No
more of the image is decoded and resized than necessary: the view is cut out before it is resized, and a JPEG is
decoded at the smallest of its own scales that still holds all the pixels of a training view.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from PIL import Image, ImageOps

from stepnet.data.augment import Pixels
from stepnet.errors import UserError, first_line
from stepnet.files import open_file, printable
from stepnet.randomness import random_words, uniform

FORMATS = ("JPEG", "PNG", "WEBP", "BMP")
SUFFIXES = frozenset({".jpeg", ".jpg", ".png", ".webp", ".bmp"})
LARGEST_FILE = 2**28  # bytes
LARGEST_IMAGE = 2**27  # pixels that are decoded: 400 MB of colours
ORIENTATION = 0x0112  # the EXIF tag; from 5 up, width and height change places

AREA, RATIO, ATTEMPTS = (0.08, 1.0), (3 / 4, 4 / 3), 10  # of a random view, as Szegedy et al. draw it
MARGIN = 256 / 224  # of the evaluation view: its shorter side is 256 for a crop of 224


class UnreadableImage(UserError):
    """A file that is not a complete image of a supported format, or is too large."""


class View(NamedTuple):
    """The part of an image that a network sees, in pixels of the image, and whether it is mirrored."""

    left: float
    top: float
    right: float
    bottom: float
    mirrored: bool = False


Look: TypeAlias = Callable[[int, int], View]  # from the width and height of an image


def read_view(path: Path, side: int, look: Look, *, exact: bool = True) -> Pixels:
    """Return the view of the image at `path`, resized to [side, side, 3].

    Grey, palettes and CMYK become RGB, and a photo that was taken with the camera on its side is turned upright. Unless
    `exact`, a resize to less than half may go over an image that was averaged by whole pixels before.
    """
    with _opened(path) as image:
        return view_of(image, side, look, exact=exact)


def view_of(image: Image.Image, side: int, look: Look, *, exact: bool = True) -> Pixels:
    """Return the view of an open image, as `read_view` does."""
    turned = _turned(image)
    width, height = _upright_size(image, turned)
    view = look(width, height)
    if not exact:
        wanted = (side * width / (view.right - view.left), side * height / (view.bottom - view.top))
        wanted_size = (math.ceil(wanted[turned]), math.ceil(wanted[1 - turned]))
        image.draft(image.mode, wanted_size)
    if image.width * image.height > LARGEST_IMAGE:
        raise UserError(f"{image.width} x {image.height} pixels, more than {LARGEST_IMAGE:,}")
    pixels = ImageOps.exif_transpose(image) if "exif" in image.info else image
    if pixels.mode != "RGB":
        pixels = _colours(pixels)
    across, down = pixels.width / width, pixels.height / height
    right, bottom = min(view.right * across, pixels.width), min(view.bottom * down, pixels.height)  # but rounding
    box = (view.left * across, view.top * down, right, bottom)
    small = pixels.resize((side, side), Image.Resampling.BILINEAR, box, None if exact else 2.0)
    array: Pixels = np.asarray(small)
    return array[:, ::-1] if view.mirrored else array


def image_size(path: Path) -> tuple[int, int]:
    """Return the width and height of the upright image at `path`, from its header."""
    with _opened(path) as image:
        return _upright_size(image, _turned(image))


def centre_view(side: int, margin: float = MARGIN) -> Look:
    """Return the centre crop: shorter side `margin * side` pixels, then `side` x `side`."""
    shorter = round(margin * side)

    def look(width: int, height: int) -> View:
        least = min(width, height)
        columns, rows = (shorter if edge == least else int(shorter * edge / least) for edge in (width, height))
        left, top = round((columns - side) / 2), round((rows - side) / 2)
        across, down = width / columns, height / rows
        return View(left * across, top * down, (left + side) * across, (top + side) * down)

    return look


def random_view(word: int) -> Look:
    """Return a crop of random area and aspect ratio, mirrored with probability 1/2, as a function of the random word.

    The paper resizes the shorter side to a random length in [256, 480] before. A crop whose area is a share of the
    whole does not depend on it, so that the crop is taken from the file's own pixels.
    """
    mirrored, *draws = uniform(random_words(1 + 4 * ATTEMPTS, word)).tolist()

    def look(width: int, height: int) -> View:
        for attempt in range(ATTEMPTS):
            area, ratio, x, y = draws[4 * attempt : 4 * attempt + 4]
            share = width * height * (AREA[0] + (AREA[1] - AREA[0]) * area)
            aspect = RATIO[0] * (RATIO[1] / RATIO[0]) ** ratio
            across, down = math.sqrt(share * aspect), math.sqrt(share / aspect)
            if across <= width and down <= height:
                break
        else:  # a very long image: the largest part in its middle that has an allowed ratio
            across, down, x, y = min(width, height * RATIO[1]), min(height, width / RATIO[0]), 0.5, 0.5
        left, top = x * (width - across), y * (height - down)
        return View(left, top, left + across, top + down, mirrored < 0.5)

    return look


def _turned(image: Image.Image) -> bool:
    return "exif" in image.info and image.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8)


def _upright_size(image: Image.Image, turned: bool) -> tuple[int, int]:
    return (image.height, image.width) if turned else image.size


def _colours(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # grey of 16 bits: Pillow would clip it to 255
        return Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    return image.convert("RGB")


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    try:
        with open_file(path, LARGEST_FILE) as file, Image.open(file, formats=FORMATS) as image:
            yield image
    except Exception as error:  # a decoder raises whatever damaged bytes happen to mean
        if not os.path.exists(path):  # noqa: PTH110  (pathlib raises on long names)
            raise UnreadableImage(f"{printable(path)}: no such file") from None
        said = first_line(error).replace(printable(path), "it")
        raise UnreadableImage(f"{printable(path)} cannot be read as an image ({said})") from None
