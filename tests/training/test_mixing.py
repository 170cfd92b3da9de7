"""Stronger augmentation: images and labels are mixed in the same shares, and a resumed run sees the same ones."""

import numpy as np
import pytest
import torch

from stepnet import UserError
from stepnet.data import Data, ImageSet
from stepnet.training import Recipe, train
from stepnet.training.mixing import BatchMixing
from stepnet.training.saving import Interrupted
from training.runs import StopAt, assert_same_run
from training.tiny import RECIPE


def flat(count=8, side=16):
    """Images of one grey each, and three classes."""
    greys = np.arange(count, dtype=np.uint8)[:, None, None, None] * 10
    images = ImageSet(np.broadcast_to(greys, (count, side, side, 3)).copy(), np.arange(count) % 3, ("a", "b", "c"))
    return Data("flat", images, images)


def batch(data):
    return data.normalise(data.train.images), torch.from_numpy(data.train.labels)


def test_nothing_is_asked_for_by_default():
    assert BatchMixing.of(Recipe(), flat()) is None


def test_mixup_mixes_images_and_labels_in_the_same_shares():
    data = flat()
    images, labels = batch(data)
    torch.manual_seed(0)
    mixed, shares = BatchMixing.of(Recipe(mixup=1.0), data)(images, labels)
    assert mixed.shape == images.shape and shares.shape == (8, 3)
    assert torch.allclose(shares.sum(1), torch.ones(8))
    values, one_hot = images[:, 0, 0, 0], torch.nn.functional.one_hot(labels, 3).float()
    rolled = values.roll(1)  # torchvision pairs each image with the one before it
    share = ((mixed[:, 0, 0, 0] - rolled) / (values - rolled)).mean()
    assert 0 < share < 1
    assert torch.allclose(shares, share * one_hot + (1 - share) * one_hot.roll(1, 0), atol=1e-5)


def test_the_shares_of_cutmix_are_areas():
    data = flat()
    images, labels = batch(data)
    torch.manual_seed(1)
    mixed, shares = BatchMixing.of(Recipe(cutmix=1.0), data)(images, labels)
    own = (mixed[:, 0] == images[:, 0, :1, :1]).flatten(1).double().mean(1)
    places = [n for n in range(8) if labels[n] != labels[n - 1]]
    assert 0 < own[0] < 1
    for n in places:
        assert float(shares[n, labels[n]]) == pytest.approx(float(own[n]), abs=1e-6)


def test_randaugment_changes_images_one_by_one_and_keeps_labels():
    data = flat()
    noise = np.random.default_rng(0).integers(0, 256, (8, 16, 16, 3), dtype=np.uint8)
    images, labels = data.normalise(noise), torch.arange(8) % 3
    mixing = BatchMixing.of(Recipe(randaugment=9), data)
    torch.manual_seed(3)
    changed, same = mixing(images, labels)
    assert torch.equal(same, labels) and not torch.allclose(changed, images)
    assert torch.allclose(mixing._normalised(mixing._bytes(images)), images, atol=1e-4)  # bytes and back
    torch.manual_seed(3)
    assert torch.equal(mixing(images, labels)[0], changed)


def test_a_run_with_all_of_them_resumes_to_the_bit(tmp_path):
    data = flat(24)
    plain = RECIPE.override({"batch_size": 8})
    strong = plain.override({"mixup": 0.2, "cutmix": 1.0, "randaugment": 9, "label_smoothing": 0.1})
    whole = train("tiniest", data, strong, out=tmp_path / "whole")
    with pytest.raises(Interrupted):
        train("tiniest", data, strong, out=tmp_path / "a", callbacks=[StopAt(1, 2)])
    assert_same_run(train("tiniest", data, strong, out=tmp_path / "a"), whole)
    other = train("tiniest", data, plain, out=tmp_path / "plain")
    assert other.metrics()[0]["loss"] != whole.metrics()[0]["loss"]


def test_without_images_it_is_refused():
    vectors = type("Vectors", (), {"shape": (8,), "classes": ("a",)})()
    data = type("Some", (), {"train": vectors, "num_classes": 1})()
    with pytest.raises(UserError, match="are for images and classes"):
        BatchMixing.of(Recipe(mixup=0.2), data)
