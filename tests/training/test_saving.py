"""What is never saved, whenever the scores were read."""

import dataclasses
import os
from pathlib import Path

import pytest
import torch

from stepnet import UserError
from stepnet.exchange.model_files import load
from stepnet.training import loop, scores, train
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
