from pathlib import Path

import numpy as np
import pytest

from stepnet.data import Data, ImageSet, data_root, get_data, list_data, register_data
from stepnet.data.augment import Augmentation
from stepnet.data.datasets import Request
from stepnet.data.normalise import Normalisation, statistics
from stepnet.errors import UserError

IMAGES = np.zeros((3, 4, 4, 1), np.uint8)
LABELS = np.array([0, 1, 1])


@pytest.mark.usefixtures("registries")
def test_what_is_registered_is_listed_and_found(tmp_path: Path) -> None:
    seen: list[Path] = []

    @register_data("three")
    def three(root: Path) -> Data:
        seen.append(root)
        images = ImageSet(IMAGES, LABELS, ("a", "b"))
        return Data("three", images, images)

    assert "three" in list_data()
    data = get_data("three", tmp_path)
    assert seen == [tmp_path]
    assert (data.num_classes, data.in_channels, data.image_size) == (2, 1, 4)
    with pytest.raises(UserError, match="'three' is registered already"):
        register_data("three")(three)


def test_an_unknown_name_is_told_its_neighbour() -> None:
    with pytest.raises(UserError, match="unknown data set, file or folder 'cifar1O': did you mean 'cifar10'"):
        get_data("cifar1O")


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES.astype(np.float32), LABELS, "expected uint8"),
        (IMAGES[0], LABELS, r"shape \(4, 4, 1\)"),
        (IMAGES, LABELS[:2], r"expected int64 \[3\]"),
        (IMAGES, LABELS.astype(np.int32), "labels are int32"),
        (IMAGES, np.array([0, 2, 0]), "labels run from 0 to 2: expected 0 to 1"),
        (IMAGES, np.array([0, -1, 0]), "labels run from -1 to 0"),
        (IMAGES[:0], LABELS[:0], "without images"),
    ],
)
def test_what_does_not_fit_is_refused(images: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ImageSet(images, labels, ("a", "b"))


def test_training_and_test_sets_must_agree() -> None:
    with pytest.raises(UserError, match="one: class 0 is 'a' in the training set, 'b' in the test set"):
        Data("one", ImageSet(IMAGES, LABELS, ("a", "b")), ImageSet(IMAGES, LABELS, ("b", "a")))
    with pytest.raises(UserError, match=r"one: training images are \(4, 4, 1\), test images \(3, 4, 1\)"):
        Data("one", ImageSet(IMAGES, LABELS, ("a", "b")), ImageSet(IMAGES[:, 1:], LABELS, ("a", "b")))


def test_shrunk_images_are_means_of_squares() -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), np.uint8)
    labels = np.zeros(5, np.int64)
    large = ImageSet(images, labels, ("a",), Augmentation(pad=4, flip=True))
    small = Data("made", train=large, test=ImageSet(images, labels, ("a",))).shrunk(2)
    for n, row, column, channel in np.ndindex(5, 2, 2, 3):
        mean = images[n, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4, channel].mean()
        assert abs(int(small.train.images[n, row, column, channel]) - mean) <= 0.5  # type: ignore[attr-defined]
    assert small.train.augmentation == Augmentation(pad=1, flip=True)  # type: ignore[attr-defined]
    anew = statistics(small.train.images)  # type: ignore[attr-defined]
    assert small.normalise == anew and anew.std != Data("made", train=large, test=large).normalise.std


def test_the_root_is_told_or_set_or_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STEPNET_DATA", str(tmp_path / "set"))
    assert data_root(tmp_path / "told") == tmp_path / "told"
    assert data_root() == tmp_path / "set"
    monkeypatch.delenv("STEPNET_DATA")
    assert data_root() == Path.home() / ".cache" / "stepnet"


def test_what_is_held_out_is_no_longer_trained_on() -> None:
    images = np.arange(200, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 1), np.uint8)
    whole = ImageSet(images, np.arange(200) % 2, ("even", "odd"))
    data = Data("numbers", whole, whole).hold_out(0.25)
    again = Data("numbers", whole, whole).hold_out(0.25)
    train, held = data.train.places.tolist(), data.validation.places.tolist()
    assert sorted(train + held) == list(range(200)) and 30 <= len(held) <= 70
    assert held == again.validation.places.tolist() and len(data.test) == 200
    assert data.train.labels.tolist() == [n % 2 for n in train]
    plain = Normalisation((0.0,), (1.0,))
    (read, labels), *_ = data.validation.read([Request(np.arange(5), None)], plain)
    assert (read[:, 0, 0, 0] * 255).round().tolist() == held[:5] and labels.tolist() == [n % 2 for n in held[:5]]
    with pytest.raises(UserError, match="has a validation set of its own"):
        data.hold_out(0.5)
    with pytest.raises(UserError, match="leaves a set empty"):
        Data("numbers", whole, whole).hold_out(1e-9)
