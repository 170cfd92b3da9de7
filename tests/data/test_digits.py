import numpy as np
import pytest

from stepnet.data import ImageSet, get_data


def test_they_are_those_of_scikit_learn_and_the_split_is_fixed() -> None:
    data, bunch = get_data("digits"), pytest.importorskip("sklearn.datasets").load_digits()
    assert isinstance(data.train, ImageSet) and isinstance(data.test, ImageSet)
    assert (len(data.train), len(data.test)) == (1497, 300)
    images = np.concatenate([data.train.images, data.test.images])
    assert np.array_equal(images[..., 0] / 15, bunch.images)  # the scaling is exact
    assert np.array_equal(np.concatenate([data.train.labels, data.test.labels]), bunch.target)


def test_every_class_is_in_both_sets() -> None:
    data = get_data("digits")
    assert isinstance(data.train, ImageSet) and isinstance(data.test, ImageSet)
    assert data.train.classes == tuple("0123456789")
    for images in (data.train, data.test):
        share = np.bincount(images.labels, minlength=10) / len(images)
        assert share.min() > 0.08 and share.max() < 0.12


def test_digits_move_but_are_not_mirrored() -> None:
    data = get_data("digits")
    assert isinstance(data.train, ImageSet)
    assert data.train.augmentation.pad == 1
    assert data.train.augmentation.flip is False
