"""The objects of a run: folder, position, trial passes."""

import json
import os
import shutil
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from stepnet import UserError
from stepnet.training import Callback, Display, Run, evaluate, train, trial
from stepnet.training.trainer import Trainer
from training.tiny import RECIPE, read_all, tiny_config


def test_a_trainer_locks_its_folder_and_unlocks_it(tmp_path):
    with Trainer(tiny_config(tmp_path / "a", model="tiniest"), resume=True) as trainer:
        assert not trainer.is_done and (tmp_path / "a" / ".lock").exists()
        assert trainer.learning_rate(1, 0) < trainer.learning_rate(0, 0)
    assert trainer.lock.closed and trainer.model is None


def test_frozen_statistics_stay_frozen(tmp_path):
    with Trainer(tiny_config(tmp_path / "a", model="tiniest", freeze_bn=True), resume=True) as trainer:
        trainer.set_training_mode(trainer.model)
        assert trainer.network.training
        assert not any(m.training for m in trainer.network.modules() if isinstance(m, nn.BatchNorm2d))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train(tiny_config(tmp_path_factory.mktemp("run") / "a", model="tiniest", recipe={"epochs": 1}))


@pytest.mark.parametrize(
    "change",
    [{"epoch": 7}, {"step": 100, "seen": 9}, {"seen": 10**6, "step": 1}, {"step": 2}, {"sums": {"loss": 5.0}}],
    ids=str,
)
def test_a_position_that_the_run_cannot_have_is_refused(tmp_path, finished, change):
    run = Run(tmp_path / "a")
    run.folder.mkdir()
    for path in (finished.config_file, finished.metrics_file, finished.last):
        (run.folder / path.name).write_bytes(path.read_bytes())
    with safe_open(run.last, framework="pt") as file:
        header = file.metadata()
    header["progress"] = json.dumps(json.loads(header["progress"]) | change)
    save_file(read_all(run.last), run.last, metadata=header)
    with pytest.raises(UserError, match=r"last\.safetensors is damaged: it stands at epoch .*--overwrite$"):
        Trainer(tiny_config(run.folder, model="tiniest", recipe={"epochs": 1}), resume=True)


def test_a_checkpoint_that_was_cut_off_is_refused_with_what_to_do(tmp_path, finished):
    run = Run(tmp_path / "a")
    shutil.copytree(finished.folder, run.folder)
    os.truncate(run.last, 1000)
    with pytest.raises(UserError, match=r"last\.safetensors is damaged .*; restore the file, or .* with --overwrite$"):
        train(tiny_config(run.folder, model="tiniest", recipe={"epochs": 1}))


def test_a_finished_run_whose_metrics_were_cut_off_is_not_told_as_finished(tmp_path, finished, capsys):
    run = Run(tmp_path / "a")
    shutil.copytree(finished.folder, run.folder)
    os.truncate(run.metrics_file, 20)
    with pytest.raises(UserError, match=r"metrics.jsonl does not hold the 1 epoch that .* with --overwrite$"):
        train(tiny_config(run.folder, model="tiniest", recipe={"epochs": 1}), callbacks=[Display("tiniest")])
    assert "already finished" not in capsys.readouterr().out


def test_a_folder_that_is_removed_under_a_run_is_not_made_again(tmp_path):
    class Remove(Callback):
        def step(self, trainer):
            for path in folder.iterdir() if folder.exists() else ():
                path.unlink()
            folder.rmdir() if folder.exists() else None

    folder = tmp_path / "a"
    with pytest.raises(UserError, match="was removed during the run"):
        train(tiny_config(folder, model="tiniest", checkpoint_steps=1), callbacks=[Remove()])
    assert not folder.exists()


@pytest.mark.parametrize(("eval_batch_size", "sizes"), [(None, [256, 44]), (100, [100, 100, 100])])
def test_evaluation_batches_are_those_of_training_by_default(tmp_path, finished, eval_batch_size, sizes):
    with Trainer(tiny_config(tmp_path / "a", model="tiniest", eval_batch_size=eval_batch_size), resume=True) as trainer:
        assert [len(labels) for _, labels in trainer.tests.epoch()] == sizes
    assert evaluate(finished, "last").items == 300


def pooled(side):
    """Its batch norm sees one pixel of each image, of `side` x `side` pixels at least."""
    return nn.Sequential(
        nn.Conv2d(1, 4, side), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 10)
    )


def test_a_last_batch_of_one_image_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(
        UserError, match=r"batches of 136 leave one of 1,497 images alone, .*another --batch-size"
    ) as error:
        train(pooled(3), "digits", RECIPE.override({"batch_size": 136}), out=tmp_path / "a")
    assert "\n" not in str(error.value) and not (tmp_path / "a").exists()
    once = RECIPE.override({"batch_size": 748, "epochs": 1, "milestones": ()})
    train(pooled(3), "digits", once, out=tmp_path / "a", freeze_bn=True)


def test_images_that_are_too_small_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UserError, match=r"cannot be trained on images of 8x8x1: .*; use larger images") as error:
        train(pooled(9), "digits", RECIPE, out=tmp_path / "a")
    assert "\n" not in str(error.value) and not (tmp_path / "a").exists()


def test_the_check_of_the_images_leaves_the_network_as_it_was(tmp_path):
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    network = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(), nn.Flatten(), nn.Linear(64, 10))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    torch.random.set_rng_state(state)
    with Trainer(tiny_config(tmp_path / "a"), True, network=network) as trainer:
        assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.network.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_step_is_estimated_from_a_few_items_and_leaves_the_network_as_it_was(tmp_path, monkeypatch):
    """A step costs three forward passes of its 256 images, of which 8 take 2 s by this clock: the median of three."""
    with Trainer(tiny_config(tmp_path / "a", model="tiniest"), resume=True) as trainer:
        before, state = {n: t.clone() for n, t in trainer.network.state_dict().items()}, torch.get_rng_state()
        monkeypatch.setattr(trial.time, "perf_counter", iter([10.0, 11.0, 15.0, 17.0]).__next__)
        assert trial.estimate_step(trainer) == 3 * 2.0 * 256 / 8
        assert all(torch.equal(t, before[n]) for n, t in trainer.network.state_dict().items())
        assert torch.equal(torch.get_rng_state(), state)


def test_a_step_is_not_estimated_where_a_few_items_on_one_processor_say_little(tmp_path):
    with Trainer(tiny_config(tmp_path / "a", model="tiniest"), resume=True) as trainer:
        for changes in ({"count": 2}, {"device": torch.device("cuda")}):
            processes = SimpleNamespace(**{"count": 1, "device": torch.device("cpu")} | changes)
            other = SimpleNamespace(processes=processes, config=trainer.config)
            assert trial.estimate_step(other) is None
        trainer.network.forward = None  # and where a pass fails
        assert trial.estimate_step(trainer) is None
