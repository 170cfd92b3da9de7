"""ImageNet: the class folders in `ROOT/imagenet/train` and `ROOT/imagenet/val`, in images of 224 x 224 pixels."""

from __future__ import annotations

from pathlib import Path

from stepnet.data.datasets import Data, register_data
from stepnet.data.folders import find_images, photos
from stepnet.data.normalise import Normalisation

CUSTOMARY = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # what published weights expect


@register_data("imagenet")
def imagenet(root: Path) -> Data:
    """The class folders in `root/imagenet`."""
    found = find_images(root / "imagenet")
    train, test = (photos(part, found.classes, 224) for part in (found.train, found.validation))
    return Data("imagenet", train, test, CUSTOMARY)
