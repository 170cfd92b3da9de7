"""1,797 handwritten digits, grey images of 8x8 pixels, inside the package: the first command needs no download.

They are the test set of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, UCI Machine Learning
Repository, 1998, doi 10.24432/C50P49, CC BY 4.0) in the order in which scikit-learn's `load_digits` gives them;
`tests/data/test_digits.py` compares the two where scikit-learn is installed. `digits.npz` holds `images`, uint8
[1797, 8, 8] of the whole numbers 0 to 16, and `labels`, uint8 [1797].
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stepnet.data.augment import Augmentation
from stepnet.data.datasets import Data, ImageSet, register_data

# The last 300 are the test set: a fixed split.
TEST_IMAGES = 300

# The grey values are the whole numbers 0 to 16. Times 15, the largest whole factor that fits into a byte, the scaling
# is exact, and the normalisation undoes it.
GREY_STEP = 15

# A digit moved by one pixel is the same digit; its mirror image is not.
AUGMENTATION = Augmentation(pad=1, flip=False)


@register_data("digits")
def digits(root: Path) -> Data:
    """Return the digits, which are part of the package; `root` is not used."""
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as arrays:
        images = (arrays["images"] * np.uint8(GREY_STEP))[..., np.newaxis]
        labels = arrays["labels"].astype(np.int64)
    classes = tuple(map(str, range(10)))
    split = len(images) - TEST_IMAGES
    return Data(
        "digits",
        train=ImageSet(images[:split], labels[:split], classes, AUGMENTATION),
        test=ImageSet(images[split:], labels[split:], classes),
    )
