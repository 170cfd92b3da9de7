from pathlib import Path

import pytest
from PIL import Image

from data.photographs import write_photos
from stepnet.data import ImageSet, get_data
from stepnet.data.folders import common_side, find_images, folder_data, position
from stepnet.data.photos import Photos
from stepnet.errors import UserError


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.mark.parametrize("validation", ["val", "test"])
def test_train_and_val_or_test(validation: str, tmp_path: Path) -> None:
    touch(tmp_path / "train/b/1.JPG", tmp_path / "train/a/deep/2.png", tmp_path / "train/a/notes.txt")
    touch(tmp_path / validation / "a/3.webp", tmp_path / "train/.hidden/4.jpg")
    found = find_images(tmp_path)
    assert found.classes == ("a", "b")
    assert [(path.name, name) for path, name in found.train] == [("2.png", "a"), ("1.JPG", "b")]
    assert [(path.name, name) for path, name in found.validation] == [("3.webp", "a")]


def test_with_val_and_test_the_epoch_is_chosen_on_one_and_tested_on_the_other(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", ("train", "val", "test"), size=(8, 8))
    (tmp_path / "photos" / "test" / "n01" / "100.JPEG").unlink()
    data = folder_data(tmp_path / "photos", tmp_path / "cache")
    assert data.validation is not None
    assert (len(data.train), len(data.validation), len(data.test)) == (6, 6, 5)


def test_a_test_folder_without_classes_is_left_alone(tmp_path: Path) -> None:
    """Tiny ImageNet's test/images, of which nobody knows the classes."""
    touch(tmp_path / "train/a/0.png", tmp_path / "train/b/1.png", tmp_path / "val/a/2.png")
    touch(tmp_path / "test/images/3.png")
    found = find_images(tmp_path)
    assert found.test is None and [path.name for path, _ in found.validation] == ["2.png"]


def test_tiny_imagenets_own_layout(tmp_path: Path) -> None:
    touch(*(tmp_path / "train" / name / "images" / f"{name}_0.JPEG" for name in ("n01", "n02")))
    touch(*(tmp_path / "val" / "images" / f"val_{i}.JPEG" for i in range(3)))
    lines = ["val_0.JPEG\tn02\t0\t32\t44\t62", "val_1.JPEG\tn01\t52\t55\t57\t59", "val_2.JPEG\tn02\t4\t0\t60\t55", ""]
    (tmp_path / "val" / "val_annotations.txt").write_text("\n".join(lines))
    found = find_images(tmp_path)
    assert [name for _, name in found.validation] == ["n02", "n01", "n02"]
    assert all(path.is_file() for path, _ in found.validation)
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG n02\n")
    with pytest.raises(UserError, match="line 1: expected NAME, tab, CLASS"):
        find_images(tmp_path)


def test_a_share_is_split_off_by_the_names_alone(tmp_path: Path) -> None:
    touch(*(tmp_path / name / f"{i}.jpg" for name in "ab" for i in range(500)))
    found = find_images(tmp_path, 0.1)
    held_out = {path for path, _ in found.validation}
    assert 60 < len(held_out) < 140 and len(found.train) == 1000 - len(held_out)
    assert all(position(path.relative_to(tmp_path)) < 0.1 for path in held_out)
    touch(tmp_path / "a" / "another.jpg")
    again = {path for path, _ in find_images(tmp_path, 0.1).validation}
    assert held_out <= again and len(again - held_out) <= 1


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ([], {}, "holds no images: expected"),
        (["a/notes.txt", "b/notes.txt"], {}, "holds no images"),
        (["a/1.jpg", "b/2.jpg"], {}, "no images for validation: .* or a share such as --val-share 0.1"),
        (["a/1.jpg", "b/2.jpg"], {"val_share": 1.5}, "val_share = 1.5: expected a share"),
        (["train/a/1.jpg", "val/a/2.jpg"], {}, "holds one class, 'a': expected a folder for each"),
        (
            ["train/a/1.jpg", "train/b/1.jpg", "val/c/1.jpg", "val/d/1.jpg"],
            {},
            "class 'c' and 1 more is in the validation set but not in the training set",
        ),
        (["train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg"], {"val_share": 0.1}, "has a folder val/: give only one"),
        (["a/1.jpg", "b/2.jpg"], {"val_share": 1e-9}, "none is for validation: use a larger share"),
        (["train/\udcff\udcfe/1.jpg", "val/a/1.jpg"], {}, "cannot name a class: expected printable UTF-8"),
    ],
)
def test_mistakes_are_told_in_one_line(
    files: list[str], options: dict[str, float], message: str, tmp_path: Path
) -> None:
    touch(*(tmp_path / file for file in files))
    with pytest.raises(UserError, match=message) as raised:
        get_data(tmp_path, tmp_path / "root", **options)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 400
    str(raised.value).encode()  # can be printed
    assert not (tmp_path / "root").exists()  # nothing half written


def test_hundreds_of_strange_classes_are_one_short_line(tmp_path: Path) -> None:
    touch(*(tmp_path / "train" / f"class-{i}" / "1.jpg" for i in range(200)))
    touch(*(tmp_path / "val" / f"other-{i}" / "1.jpg" for i in range(200)))
    with pytest.raises(UserError, match="'other-0' and 199 more") as raised:
        find_images(tmp_path)
    assert len(str(raised.value)) < 300


def test_small_images_are_decoded_once_and_photos_each_time(tmp_path: Path) -> None:
    write_photos(tmp_path / "small", size=(40, 32))
    write_photos(tmp_path / "large")
    cache = tmp_path / "cache"
    small, large = folder_data(tmp_path / "small", cache), folder_data(tmp_path / "large", cache)
    assert isinstance(small.train, ImageSet) and small.train.shape == (32, 32, 3)
    assert small.train.augmentation.pad == 4 and small.train.augmentation.flip
    assert isinstance(large.train, Photos) and large.train.shape == (224, 224, 3)
    forced = folder_data(tmp_path / "large", cache, 64)
    assert isinstance(forced.train, ImageSet) and forced.train.shape == (64, 64, 3)
    assert forced.name == "large" and forced.train.classes == ("n01", "n02")


@pytest.mark.parametrize("size", [(40, 32), (300, 260)], ids=["decoded once", "decoded each time"])
def test_statistics_are_taken_once(size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_photos(tmp_path / "photos", size=size)
    first = folder_data(tmp_path / "photos", tmp_path / "cache").normalise
    for kind in (Photos, ImageSet):
        monkeypatch.setattr(kind, "statistics", lambda self: pytest.fail("taken again"))
    assert folder_data(tmp_path / "photos", tmp_path / "cache").normalise == first  # to the bit


def test_the_common_size_is_the_median_of_the_shorter_sides(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(5)]
    for path, side in zip(paths, (20, 30, 30, 30, 90), strict=True):
        Image.new("L", (side + 5, side)).save(path)
    assert common_side(paths) == 30
    for path in paths:
        path.write_bytes(b"no image")
    with pytest.raises(UserError, match="cannot be read as an image"):
        common_side(paths)


def test_imagenet_is_a_folder_with_the_customary_constants(tmp_path: Path) -> None:
    write_photos(tmp_path / "imagenet")
    data = get_data("imagenet", tmp_path)
    assert isinstance(data.train, Photos)
    assert data.train.classes == ("n01", "n02")
    assert (data.num_classes, data.in_channels, data.image_size) == (2, 3, 224)
    assert data.normalise.mean == (0.485, 0.456, 0.406) and data.normalise.std == (0.229, 0.224, 0.225)


def test_missing_folders_of_imagenet_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a folder of images for each class"):
        get_data("imagenet", tmp_path)
    (tmp_path / "imagenet" / "train").mkdir(parents=True)
    with pytest.raises(UserError, match="holds no images"):
        get_data("imagenet", tmp_path)
