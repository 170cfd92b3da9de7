"""What is never saved, whenever the scores were read."""

import dataclasses

import pytest
import torch

from stepnet import UserError
from stepnet.training import scores, train
from training.tiny import read_all, tiny_config


def test_a_loss_that_is_not_finite_is_caught_before_its_weights_are_saved(tmp_path, monkeypatch):
    """No reading falls between the bad step and the checkpoint: saving reads."""
    monkeypatch.setattr(scores, "SECONDS_BETWEEN_READINGS", 1e9)
    good = tiny_config(tmp_path / "a", model="tiniest", checkpoint_steps=1)
    bad = dataclasses.replace(good, recipe=good.recipe.override({"lr": 1e18}), checkpoint_steps=4)
    with pytest.raises(
        UserError, match=r"(the loss|\w+) is (nan|inf) at epoch 0, step 4, lr 1e\+18.*no checkpoint yet"
    ):
        train(bad)
    assert not list((tmp_path / "a").glob("*.safetensors"))


def test_the_last_good_checkpoint_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(scores, "SECONDS_BETWEEN_READINGS", 1e9)
    with pytest.raises(UserError, match=r"the last good checkpoint is .*last\.safetensors"):
        train(tiny_config(tmp_path / "a", model="tiniest", checkpoint_steps=1, recipe={"lr": 1e18}))
    kept = read_all(tmp_path / "a" / "last.safetensors")
    assert all(bool(torch.isfinite(value).all()) for value in kept.values())
