"""scikit-learn's handwritten digits: 1,797 grey images of 8x8 pixels inside a wheel, so nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stepnet.data.augment import Augmentation
from stepnet.data.datasets import Data, ImageSet, register_data

# The last 300 are the test set, as they stand: a split that no seed decides.
TEST_IMAGES = 300

# The grey values are the whole numbers 0 to 16. Times 15, the largest whole factor that fits into a byte, the scaling
# is exact, and the normalisation undoes it.
GREY_STEP = 15

# A digit moved by one pixel is the same digit; its mirror image is another sign, or none.
AUGMENTATION = Augmentation(pad=1, flip=False)


@register_data("digits")
def digits(root: Path) -> Data:
    """The digits; `root` is not read, for they come with scikit-learn."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = (bunch.images * GREY_STEP).astype(np.uint8)[..., np.newaxis]
    labels = bunch.target.astype(np.int64)
    classes = tuple(map(str, bunch.target_names))
    split = len(images) - TEST_IMAGES
    return Data.of(
        "digits",
        train=ImageSet(images[:split], labels[:split], classes, AUGMENTATION),
        test=ImageSet(images[split:], labels[split:], classes),
    )
