import dataclasses
import json
import signal

import pytest
import torch

from stepnet import UserError
from stepnet.training import Run, Watcher, train
from stepnet.training.signals import Interrupted
from training.tiny import read_all, tiny_config

TIMINGS = {"seconds", "images_per_second"}


def metrics_of(run):
    return [{k: v for k, v in line.items() if k not in TIMINGS} for line in run.metrics()]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return train(tiny_config(tmp_path_factory.mktemp("run") / "whole"))


def assert_same_run(a, b):
    for name in ("last", "best"):
        mine, theirs = read_all(getattr(a, name)), read_all(getattr(b, name))
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    assert metrics_of(a) == metrics_of(b)


class StopAt(Watcher):
    """Sends this process a signal at a given step, as a person or a scheduler would."""

    def __init__(self, epoch, step, number=signal.SIGTERM):
        self.at, self.number = (epoch, step), number

    def step(self, progress, images_per_second):
        if (progress.epoch, progress.step) == self.at:
            signal.raise_signal(self.number)


def test_a_run_is_a_folder(uninterrupted):
    names = {path.name for path in uninterrupted.folder.iterdir()}
    assert names == {"config.yaml", "environment.yaml", "metrics.jsonl", "last.safetensors", "best.safetensors"}
    lines = uninterrupted.metrics()
    assert [line["epoch"] for line in lines] == [0, 1]
    assert lines[0]["lr"] == pytest.approx(0.05) and lines[1]["lr"] == pytest.approx(0.005)
    assert len(lines[0]["k"]) == 3 and lines[0]["k"] != lines[1]["k"]
    assert lines[1]["loss"] < lines[0]["loss"]


@pytest.mark.parametrize(("epoch", "step"), [(0, 1), (0, 4), (1, 3), (1, 6)])
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path, uninterrupted, epoch, step):
    config = tiny_config(tmp_path / "a")
    with pytest.raises(Interrupted, match="SIGTERM") as stop:
        train(config, watcher=StopAt(epoch, step))
    assert stop.value.exit_code == 143
    assert_same_run(train(config), uninterrupted)


def test_ctrl_c_saves_and_exits_with_130(tmp_path):
    with pytest.raises(Interrupted, match=r"SIGINT; saved .*last\.safetensors") as stop:
        train(tiny_config(tmp_path / "a"), watcher=StopAt(0, 2, signal.SIGINT))
    assert stop.value.exit_code == 130
    assert (tmp_path / "a" / "last.safetensors").exists()


def test_metrics_beyond_the_checkpoint_are_cut_back(tmp_path, uninterrupted):
    config = tiny_config(tmp_path / "a")
    with pytest.raises(Interrupted):
        train(config, watcher=StopAt(1, 2))
    run = Run(tmp_path / "a")
    with run.metrics_file.open("a") as file:
        file.write(
            json.dumps({"epoch": 1, "test_error": 0.0}) + '\n{"epoch": 2, "te'
        )  # a crash in the middle of a line
    assert_same_run(train(config), uninterrupted)


def test_a_finished_run_is_left_alone(tmp_path, uninterrupted):
    before = {path.name: path.read_bytes() for path in uninterrupted.folder.glob("*.safetensors")}
    train(tiny_config(uninterrupted.folder))
    assert before == {path.name: path.read_bytes() for path in uninterrupted.folder.glob("*.safetensors")}


def test_a_folder_with_another_config_is_refused(uninterrupted):
    with pytest.raises(UserError, match=r"another run: seed = 0 there, 1 here; name another --out"):
        train(tiny_config(uninterrupted.folder, seed=1))
    with pytest.raises(UserError, match="holds a run already"):
        train(tiny_config(uninterrupted.folder), resume=False)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="exists and is not a run"):
        train(tiny_config(tmp_path))
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_loss_that_is_not_finite_names_step_rate_and_checkpoint(tmp_path):
    config = tiny_config(tmp_path / "a", recipe={"lr": 1e18}, checkpoint_steps=1)
    with pytest.raises(UserError, match=r"the loss is (nan|inf) at epoch 0, step \d, lr 1e\+18: .*last\.safetensors"):
        train(config)
    kept = read_all(tmp_path / "a" / "last.safetensors")
    assert kept


def test_the_same_seed_gives_the_same_run_and_another_does_not(tmp_path, uninterrupted):
    assert_same_run(train(tiny_config(tmp_path / "a")), uninterrupted)
    other = train(tiny_config(tmp_path / "b", seed=1))
    assert metrics_of(other) != metrics_of(uninterrupted)


def test_synchronised_batch_norm_needs_a_gpu(tmp_path):
    with pytest.raises(UserError, match="for GPUs, and this run is on a CPU"):
        train(tiny_config(tmp_path / "a", sync_bn=True))
    assert not (tmp_path / "a").exists()


def test_tensorboard_gets_the_metrics_and_every_k(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = tiny_config(tmp_path / "a", recipe={"epochs": 1}, log="tensorboard")
    run = train(config)
    events = EventAccumulator(str(next(run.folder.rglob("events.out*")).parent)).Reload()
    assert {"loss", "test_error"} <= set(events.Tags()["scalars"])
    assert events.Scalars("test_error")[0].value == pytest.approx(run.metrics()[0]["test_error"], rel=1e-6)
    assert any(tag.startswith("k/stages") for tag in events.Tags()["scalars"])


def test_vectors_can_be_spared_from_weight_decay(tmp_path):
    config = tiny_config(tmp_path / "a", recipe={"decay_vectors": False, "epochs": 1})
    from stepnet.training.loop import Trainer
    from stepnet.training.signals import Asked

    trainer = Trainer(config, True, Watcher(), Asked())
    decayed, spared = trainer.optimizer.param_groups
    assert decayed["weight_decay"] == 1e-4 and spared["weight_decay"] == 0
    assert all(p.ndim > 1 for p in decayed["params"]) and all(p.ndim == 1 for p in spared["params"])


def test_start_like_gives_the_first_models_weights(tmp_path):
    from stepnet.data import get_data
    from stepnet.training.build import build_network

    base = dataclasses.replace(tiny_config(tmp_path), model="preact_resnet20")
    first = build_network(base, get_data("digits")).state_dict()
    like = dataclasses.replace(base, model="lm_resnet20", start_like="preact_resnet20")
    second = build_network(like, get_data("digits")).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert set(second) - set(first) == {f"stages.{i}.k" for i in range(3)}


def test_gates_resume_to_the_same_bits(tmp_path):
    gated = {"recipe": {"stochastic_depth": 0.5}}
    whole = train(tiny_config(tmp_path / "whole", **gated))
    config = tiny_config(tmp_path / "a", **gated)
    with pytest.raises(Interrupted):
        train(config, watcher=StopAt(1, 2))
    assert_same_run(train(config), whole)


def test_the_kinetic_cost_takes_the_place_of_weight_decay(tmp_path, uninterrupted):
    light, heavy = (
        train(tiny_config(tmp_path / str(weight), recipe={"running_cost": "kinetic", "kinetic": weight, "epochs": 1}))
        for weight in (0.0, 1e-3)
    )
    assert metrics_of(light) != metrics_of(heavy)
    # All else equal, a price on |f|^2 keeps the last convolution of each block, which scales f, smaller.
    size = [
        sum(float(t.square().sum()) for n, t in read_all(run.last).items() if n.startswith("model.") and "convs.1" in n)
        for run in (light, heavy)
    ]
    assert size[1] < size[0]
    with pytest.raises(UserError, match="densenet100_k24 has no stages"):
        train(
            dataclasses.replace(
                tiny_config(tmp_path / "b", recipe={"running_cost": "kinetic"}), model="densenet100_k24"
            )
        )


@pytest.mark.parametrize("level", ["image", "batch"])
def test_ranks_take_their_slices_of_shake_shakes_noise(tmp_path, level):
    from stepnet.nets.shakeshake import cifar_shakeshake
    from stepnet.training.loop import Trainer
    from stepnet.training.signals import Asked

    trainer = Trainer(tiny_config(tmp_path / "a"), True, Watcher(), Asked())
    trainer.net = cifar_shakeshake(8, 4, level=level, in_channels=1, num_classes=10)

    def drawn(rank, world):
        trainer.batches = dataclasses.replace(trainer.batches, rank=rank, world_size=world)
        with trainer._noise(serial=5, step=5):  # the last batch, which is short
            return [block.given for block in trainer.net.shaken]

    whole, parts = drawn(0, 1), (drawn(0, 2), drawn(1, 2))
    for one, first, second in zip(whole, *parts, strict=True):
        for direction in ("forward", "backward"):
            mine = [getattr(part, direction) for part in (first, second)]
            joined = torch.cat(mine) if level == "image" else mine[0]
            assert torch.equal(getattr(one, direction), joined)
            assert level == "image" or torch.equal(*mine)
