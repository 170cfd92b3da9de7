"""Photos for tests: noise of several sizes and colour modes, in a folder for each class."""

from pathlib import Path

import numpy as np
from PIL import Image

MODES = (("RGB", (300, 400)), ("L", (500, 260)), ("CMYK", (240, 230)))


def write_photos(folder: Path, splits: tuple[str, ...] = ("train", "val"), each: int = 1, **options: object) -> None:
    """Two classes; `each` colour, grey and CMYK images of several sizes in every split."""
    rng = np.random.default_rng(0)
    for split in splits:
        for label, name in enumerate(("n02", "n01")):
            place = folder / split / name
            place.mkdir(parents=True)
            for i in range(each):
                for j, (mode, size) in enumerate(MODES):
                    noise = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                    image = Image.fromarray(noise).resize(options.get("size", size)).convert(mode)  # type: ignore[arg-type]
                    image.save(place / f"{label}{i}{j}.JPEG")
