"""Nothing is lost: a run killed at ten random moments ends with the bits of one that was not."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from stepnet import UserError
from stepnet.nets import register_model
from stepnet.randomness import Stream, uniforms_by_place
from stepnet.training import Callback, Recipe, Run, train
from stepnet.training.saving import Interrupted
from training.runs import StopAt, assert_same_run
from training.tiny import read_all, tiny_config

NOISY = {
    "stochastic depth": {"recipe": {"stochastic_depth": 0.5}},
    "drop_path": {"recipe": {"stochastic_depth": 0.5, "stochastic_mode": "drop_path"}},
    "shake-shake": {"model": "tiny_shake"},
    "FractalNet": {"model": "tiny_fractal"},
}


class Jitter(nn.Module):
    """A noisy family of its own: pixels move by noise that it draws; nothing else in the library knows of it."""

    def __init__(self, num_classes=10, in_channels=1):
        super().__init__()
        self.head = nn.Linear(in_channels, num_classes)
        self.taken = []

    def draw(self, seed, step, places):
        return torch.from_numpy(uniforms_by_place(1, places, seed, step, Stream.NOISE)).float()

    def forward(self, x, noise=None):
        self.taken.append(noise)
        pooled = x.mean((2, 3))
        return self.head(pooled if noise is None else pooled + 0.1 * noise.to(x))


@pytest.mark.usefixtures("registries")
def test_a_new_noisy_family_is_one_class(tmp_path):
    networks = []
    register_model("jitter", family="jitter")(lambda **options: networks.append(Jitter(**options)) or networks[-1])
    whole, stopped = (tiny_config(tmp_path / name, model="jitter") for name in ("whole", "stopped"))
    with pytest.raises(Interrupted):
        train(stopped, callbacks=[StopAt(1, 2)])
    assert_same_run(train(stopped), train(whole))
    in_training = [noise for noise in networks[-1].taken if noise is not None]
    assert [len(noise) for noise in in_training] == 2 * [256, 256, 256, 256, 256, 217]
    assert len({float(noise.sum()) for noise in in_training}) == 12


@pytest.mark.parametrize("family", NOISY)
def test_every_noisy_family_goes_on_to_the_same_bits(tmp_path, family):
    changes = {"model": "tiniest", **NOISY[family]}
    whole, stopped = (tiny_config(tmp_path / name, **changes) for name in ("whole", "stopped"))
    with pytest.raises(Interrupted):
        train(stopped, callbacks=[StopAt(1, 2)])
    assert_same_run(train(stopped), train(whole))


def test_blocks_that_are_evaluated_again_train_and_go_on_to_the_bits_of_stored_ones(tmp_path):
    """Stochastic depth and batch norm among them: what is drawn and what is counted comes once."""
    recipe = {"stochastic_depth": 0.5}
    stored = train(tiny_config(tmp_path / "stored", model="tiniest", recipe=recipe))
    again = tiny_config(tmp_path / "again", model="tiniest", recipe=recipe, memory="recompute")
    with pytest.raises(Interrupted):
        train(again, callbacks=[StopAt(1, 2)])
    assert_same_run(train(again), stored)


def test_bounded_coefficients_stay_inside_also_after_a_stop(tmp_path):
    """At a learning rate that drives k out of its interval otherwise."""
    recipe = {"lr": 2.0, "milestones": (), "momentum": 0.0}
    free = train(tiny_config(tmp_path / "free", recipe=recipe, model_kwargs={"k": -0.99}))
    assert min(free.metrics()[-1]["k"].values()) < -1 or max(free.metrics()[-1]["k"].values()) > 1
    options = {"k": -0.99, "k_bound": "stable"}
    whole, stopped = (
        tiny_config(tmp_path / name, recipe=recipe, model_kwargs=options) for name in ("whole", "stopped")
    )
    with pytest.raises(Interrupted):
        train(stopped, callbacks=[StopAt(1, 2)])
    run = train(stopped)
    assert_same_run(run, train(whole))
    assert all(-1 < k < 1 for line in run.metrics() for k in line["k"].values())
    assert run.metrics()[-1]["loss"] < run.metrics()[0]["loss"]


SCRIPT = Path(__file__).parent / "kill_and_resume.py"


@pytest.mark.slow
def test_ten_kills_change_no_bit(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), "10", "20171027"], capture_output=True, text=True, timeout=600
    )
    assert "killed 10 times, last exit 0" in done.stdout, done.stdout + done.stderr
    assert_same_run(Run(tmp_path / "killed"), Run(tmp_path / "whole"))
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {p.name for p in (tmp_path / "whole").iterdir()}


@pytest.mark.slow
def test_a_compiled_run_goes_on_to_the_same_bits(tmp_path):
    """Stopped before the short last batch, whose graph is then the first and only one of the process that goes on."""
    recipe = Recipe(epochs=1, batch_size=512)
    notes = []

    def compiled(name, callback):
        torch._dynamo.reset()  # as in a new process
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
        callback.note = notes.append
        return train(network, "digits", recipe, out=tmp_path / name, compile=True, callbacks=[callback])

    whole = compiled("whole", Callback())
    with pytest.raises(Interrupted):
        compiled("stopped", StopAt(0, 2))
    assert_same_run(compiled("stopped", Callback()), whole)
    assert sum("compiling" in note for note in notes) == 3 and not any("failed" in note for note in notes), notes


def as_made_before(run):
    """Rewrite a stopped run as version 0 wrote it: errors for sums, momentum for states, no task, no fingerprints."""
    with safe_open(run.last, framework="pt") as file:
        header = file.metadata()
    progress, states = json.loads(header["progress"]), json.loads(header.pop("optimizer"))
    sums = progress.pop("sums")
    progress |= {"loss_sum": sums.get("loss", 0.0), "wrong": sums.get("wrong", 0.0)}
    best = progress.pop("best")
    progress["best_error"] = math.inf if best is None else best
    del progress["stopped"]
    header |= {"progress": json.dumps(progress), "at rest": json.dumps([name for name in states if not states[name]])}
    save_file(read_all(run.last), run.last, metadata=header)
    config = yaml.safe_load(run.config_file.read_text())
    new = ("task", "data_fingerprint", "network_fingerprint")
    run.config_file.write_text(yaml.safe_dump({name: value for name, value in config.items() if name not in new}))


@pytest.mark.parametrize(("epoch", "step"), [(0, 2), (1, 3)])
def test_a_run_made_before_there_were_tasks_resumes_to_the_same_bits(tmp_path, epoch, step):
    whole, stopped = (tiny_config(tmp_path / name, model="tiniest") for name in ("whole", "stopped"))
    with pytest.raises(Interrupted):
        train(stopped, callbacks=[StopAt(epoch, step)])
    as_made_before(Run(tmp_path / "stopped"))
    assert_same_run(train(stopped), train(whole))


@pytest.mark.parametrize(
    "schedule",
    [{"milestones": (1,)}, {"schedule": "constant", "warmup": 0.0, "milestones": ()}],
    ids=["steps", "constant"],
)
def test_a_finished_run_is_extended_where_its_learning_rates_stay(tmp_path, schedule):
    short, long = ({**schedule, "epochs": epochs} for epochs in (2, 3))
    whole = train(tiny_config(tmp_path / "whole", model="tiniest", recipe=long))
    train(tiny_config(tmp_path / "a", model="tiniest", recipe=short))
    assert_same_run(train(tiny_config(tmp_path / "a", model="tiniest", recipe=long)), whole)


def test_a_schedule_of_the_whole_run_cannot_be_extended(tmp_path):
    cosine = {"schedule": "cosine", "milestones": ()}
    train(tiny_config(tmp_path / "a", model="tiniest", recipe={**cosine, "epochs": 1}))
    with pytest.raises(
        UserError,
        match=r"1 there, 2 here; with more epochs, the schedule 'cosine' has other .* \(with --weights .*/a it",
    ):
        train(tiny_config(tmp_path / "a", model="tiniest", recipe={**cosine, "epochs": 2}))
