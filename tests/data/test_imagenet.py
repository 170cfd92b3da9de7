from pathlib import Path

import pytest

from data.photographs import write_photos
from stepnet.data import get_data
from stepnet.data.photos import Photos
from stepnet.errors import UserError


def test_it_is_a_folder_with_the_customary_constants(tmp_path: Path) -> None:
    write_photos(tmp_path / "imagenet")
    data = get_data("imagenet", tmp_path)
    assert isinstance(data.train, Photos)
    assert data.train.classes == ("n01", "n02")
    assert (data.num_classes, data.in_channels, data.image_size) == (2, 3, 224)
    assert data.mean == (0.485, 0.456, 0.406) and data.std == (0.229, 0.224, 0.225)


def test_missing_folders_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a folder of images for each class"):
        get_data("imagenet", tmp_path)
    (tmp_path / "imagenet" / "train").mkdir(parents=True)
    with pytest.raises(UserError, match="holds no images"):
        get_data("imagenet", tmp_path)
