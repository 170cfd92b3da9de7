"""What is never saved, whenever the scores were read."""

import dataclasses
import os
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from stepnet import UserError
from stepnet.exchange.model_files import load
from stepnet.training import Callback, Run, loop, scores, train
from training.tiny import RECIPE, read_all, tiny_config


def test_a_loss_that_is_not_finite_is_caught_before_its_weights_are_saved(tmp_path, monkeypatch):
    """No reading falls between the bad step and the checkpoint: saving reads."""
    monkeypatch.setattr(scores, "SECONDS_BETWEEN_READINGS", 1e9)
    good = tiny_config(tmp_path / "a", model="tiniest", checkpoint_steps=1)
    bad = dataclasses.replace(good, recipe=good.recipe.override({"lr": 1e18}), checkpoint_steps=4)
    with pytest.raises(
        UserError, match=r"(the loss|\w+) is (nan|inf) at epoch 1, step 4, lr 1e\+18.*no checkpoint yet"
    ):
        train(bad)
    assert not list((tmp_path / "a").glob("*.safetensors"))


def test_the_last_good_checkpoint_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(scores, "SECONDS_BETWEEN_READINGS", 1e9)
    with pytest.raises(UserError, match=r"the last good checkpoint is .*last\.safetensors"):
        train(tiny_config(tmp_path / "a", model="tiniest", checkpoint_steps=1, recipe={"lr": 1e18}))
    kept = read_all(tmp_path / "a" / "last.safetensors")
    assert all(bool(torch.isfinite(value).all()) for value in kept.values())


def test_an_epoch_is_written_before_the_checkpoint_that_counts_it(tmp_path, monkeypatch):
    """Killed at any moment, the run resumes from a checkpoint whose epochs all have their line and their weights."""
    written, fsync, replace = [], os.fsync, os.replace

    def record_fsync(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.name == "metrics.jsonl":
            written.append(path.name)
        fsync(descriptor)

    def record_replace(source, target):
        written.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    train(tiny_config(tmp_path / "a", model="tiniest", recipe={"epochs": 1, "milestones": ()}))
    weights = ["model.safetensors", "best.safetensors"]
    assert [name for name in written if not name.endswith(".yaml")] == [
        "metrics.jsonl",  # without the lines of epochs that are run again: none
        *weights,
        "metrics.jsonl",
        "last.safetensors",
    ]


def test_of_equal_epochs_the_first_is_the_best(tmp_path, monkeypatch):
    errors = iter([50.0, 40.0, 40.0])
    monkeypatch.setattr(loop, "evaluate_epoch", lambda *_: {"test_loss": 1.0, "test_error": next(errors)})
    run = train(tiny_config(tmp_path / "a", model="tiniest", recipe={"epochs": 3, "batch_size": 1500}))
    assert load(run.best).description.training.epochs == 2
    assert load(run.model).description.training.epochs == 3


class Overflowing(nn.Linear):
    """Its losses are finite, in training and in the test, and its buffer is not."""

    def __init__(self):
        super().__init__(64, 10)
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.largest += torch.finfo(torch.float32).max
        return super().forward(x.flatten(1))


def test_weights_are_checked_before_the_model_of_an_epoch_is_written(tmp_path):
    with pytest.raises(UserError, match=r"largest is inf at epoch 1, step 6, .*no checkpoint yet"):
        train(Overflowing(), "digits", RECIPE, out=tmp_path / "a")
    assert not list((tmp_path / "a").glob("*.safetensors")) and not Run(tmp_path / "a").metrics()


def test_a_momentum_that_is_not_finite_is_not_saved(tmp_path):
    class Overflow(Callback):
        def step(self, trainer):
            trainer.optimizer.state[trainer.network.head.bias]["momentum_buffer"][0] = float("inf")

    with pytest.raises(UserError, match=r"momentum_buffer of head\.bias is inf at epoch 1, step 1"):
        train(tiny_config(tmp_path / "a", model="tiniest", checkpoint_steps=1), callbacks=[Overflow()])
    assert not Run(tmp_path / "a").last.exists()


@pytest.mark.parametrize("which", ["training", "test"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_in_the_data_is_called_that(tmp_path, which, value):
    images, labels = torch.randn(40, 1, 8, 8), torch.arange(40) % 2
    bad = images.clone()
    bad[17, 0, 3, 3] = value
    data = [TensorDataset(bad if name == which else images, labels) for name in ("training", "test")]
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    with pytest.raises(UserError, match=rf"item 17 of the {which} set holds NaN or infinity"):
        train(network, data, RECIPE.override({"batch_size": 16}), out=tmp_path / "a")
