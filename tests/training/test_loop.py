import copy
import dataclasses
import json
import signal
import threading
import time

import pytest
import torch
from tests.conversion.unstaged import Unstaged

import stepnet
from stepnet import UserError
from stepnet.data import ImageSet, evaluation_batches, get_data
from stepnet.nets import register_model
from stepnet.nets.resnet import cifar_resnet
from stepnet.training import Callback, Run, evaluate, loop, train
from stepnet.training import trainer as trainer_module
from stepnet.training.loop import evaluate_batch, fit, train_config
from stepnet.training.saving import Interrupted, StopRequest
from stepnet.training.trainer import Trainer
from training.runs import StopAt, assert_same_run, metrics_of
from training.tiny import read_all, tiny_config


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return train(tiny_config(tmp_path_factory.mktemp("run") / "whole"))


def test_a_run_is_a_folder(uninterrupted):
    names = {path.name for path in uninterrupted.folder.iterdir()}
    files = {
        "config.yaml",
        "environment.yaml",
        "metrics.jsonl",
        "last.safetensors",
        "best.safetensors",
        "model.safetensors",
    }
    assert names == files | {".lock"}
    lines = uninterrupted.metrics()
    assert [line["epoch"] for line in lines] == [0, 1]
    assert lines[0]["lr"] == pytest.approx(0.05) and lines[1]["lr"] == pytest.approx(0.005)
    assert len(lines[0]["k"]) == 3 and lines[0]["k"] != lines[1]["k"]
    assert lines[1]["loss"] < lines[0]["loss"]


@pytest.mark.parametrize(("epoch", "step"), [(0, 1), (0, 4), (1, 3), (1, 6)])
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path, uninterrupted, epoch, step):
    config = tiny_config(tmp_path / "a")
    with pytest.raises(Interrupted, match="SIGTERM") as stop:
        train(config, callbacks=[StopAt(epoch, step)])
    assert stop.value.exit_code == 143
    assert_same_run(train(config), uninterrupted)


def test_ctrl_c_saves_and_exits_with_130(tmp_path):
    with pytest.raises(Interrupted, match=r"SIGINT; saved .*last\.safetensors") as stop:
        train(tiny_config(tmp_path / "a"), callbacks=[StopAt(0, 2, signal.SIGINT)])
    assert stop.value.exit_code == 130
    assert (tmp_path / "a" / "last.safetensors").exists()


@pytest.mark.usefixtures("registries")
def test_a_stop_is_noticed_while_the_network_is_built(tmp_path):
    """A scheme may take minutes to build; nothing is there to save, so the run ends at once."""

    def build(**options):
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("the network is built to its end")

    register_model("slow_to_build", family="slow")(build)
    with pytest.raises(Interrupted, match="SIGTERM; before its first step") as stop:
        train(tiny_config(tmp_path / "a", model="slow_to_build"))
    assert stop.value.exit_code == 143 and not (tmp_path / "a").exists()


def test_metrics_beyond_the_checkpoint_are_cut_back(tmp_path, uninterrupted):
    config = tiny_config(tmp_path / "a")
    with pytest.raises(Interrupted):
        train(config, callbacks=[StopAt(1, 2)])
    run = Run(tmp_path / "a")
    with run.metrics_file.open("a") as file:
        line = json.loads(run.metrics_file.read_text().splitlines()[0]) | {"epoch": 1, "test_error": 0.0}
        file.write(json.dumps(line) + '\n{"epoch": 2, "te')  # a crash in the middle of a line
    assert_same_run(train(config), uninterrupted)


def test_a_finished_run_is_left_alone(tmp_path, uninterrupted):
    before = {path.name: path.read_bytes() for path in uninterrupted.folder.glob("*.safetensors")}
    train(tiny_config(uninterrupted.folder))
    assert before == {path.name: path.read_bytes() for path in uninterrupted.folder.glob("*.safetensors")}


def test_a_folder_with_another_config_is_refused(uninterrupted):
    with pytest.raises(UserError, match=r"another run: seed = 0 there, 1 here; name another --out"):
        train(tiny_config(uninterrupted.folder, seed=1))
    with pytest.raises(UserError, match="already holds a run"):
        train(tiny_config(uninterrupted.folder), resume=False)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="exists and is not a run"):
        train(tiny_config(tmp_path))
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_loss_that_is_not_finite_names_step_rate_and_checkpoint(tmp_path):
    config = tiny_config(tmp_path / "a", recipe={"lr": 1e18}, checkpoint_steps=1)
    with pytest.raises(UserError, match=r"the loss is (nan|inf) at epoch 1, step \d, lr 1e\+18: .*last\.safetensors"):
        train(config)
    assert all(tensor.isfinite().all() for tensor in read_all(tmp_path / "a" / "last.safetensors").values())


def test_weights_that_are_not_finite_never_take_the_place_of_good_ones(tmp_path):
    config = tiny_config(tmp_path / "a", checkpoint_steps=1)

    class Overflow(Callback):
        """As an infinite gradient would, after a loss that was finite."""

        def step(self, trainer):
            if trainer.progress.step == 3:
                next(iter(trainer.network.parameters())).data[0] = float("inf")

    with pytest.raises(UserError, match=r"stem\.weight is inf at epoch 1, step 3, .* last good checkpoint is .*last"):
        train(config, callbacks=[Overflow()])
    assert all(tensor.isfinite().all() for tensor in read_all(Run(tmp_path / "a").last).values())


def test_a_test_loss_that_is_not_finite_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "evaluate_epoch", lambda *_: {"test_loss": float("nan"), "test_error": 50.0})
    with pytest.raises(UserError, match="the test loss is nan at epoch 1, step 6"):
        train(tiny_config(tmp_path / "a"))
    assert Run(tmp_path / "a").metrics() == [] and not (tmp_path / "a" / "best.safetensors").exists()


def test_a_stop_is_not_kept_waiting_by_the_evaluation(tmp_path, uninterrupted, monkeypatch):
    config = tiny_config(tmp_path / "a")
    steps = []

    def evaluate_and_stop(*batch):
        steps.append(batch)
        signal.raise_signal(signal.SIGTERM)
        return evaluate_batch(*batch)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "evaluate_batch", evaluate_and_stop)
        patched.setattr(
            trainer_module, "evaluation_batches", lambda data, size, **ranks: evaluation_batches(data, 100, **ranks)
        )
        with pytest.raises(Interrupted):
            train(config)
    assert len(steps) == 1
    assert_same_run(train(config), uninterrupted)


def test_images_per_second_count_the_reading_of_images(tmp_path, monkeypatch):
    def slow(self, requests, normalise):
        for batch in read(self, requests, normalise):
            time.sleep(0.2)
            yield batch

    read = ImageSet.read
    monkeypatch.setattr(ImageSet, "read", slow)
    (line,) = train(tiny_config(tmp_path / "a", recipe={"epochs": 1})).metrics()
    assert line["seconds"] > 6 * 0.2
    assert line["images_per_second"] == pytest.approx(1497 / line["seconds"], rel=1e-3)


def test_images_that_cannot_be_read_are_not_counted_as_right(tmp_path, monkeypatch):
    def half(self, requests, normalise):
        for images, labels in read(self, requests, normalise):
            yield images[::2], labels[::2]

    read = ImageSet.read
    monkeypatch.setattr(ImageSet, "read", half)
    run = train(tiny_config(tmp_path / "a", recipe={"epochs": 1, "lr": 1e-6}))
    (line,) = run.metrics()
    assert line["error"] > 80 and line["test_error"] > 80  # a network that knows nothing is right once in ten
    assert evaluate(run, "last").items == 150


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
    with Trainer(config, True) as trainer:
        decayed, spared = trainer.optimizer.param_groups
    assert decayed["weight_decay"] == 1e-4 and spared["weight_decay"] == 0
    assert all(p.ndim > 1 for p in decayed["params"]) and all(p.ndim == 1 for p in spared["params"])


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
    with pytest.raises(UserError, match="densenet100_k24 does not sum the f"):
        train(
            dataclasses.replace(
                tiny_config(tmp_path / "b", recipe={"running_cost": "kinetic"}), model="densenet100_k24"
            )
        )


@pytest.mark.parametrize(
    ("model", "recipe"),
    [("tiniest", {"stochastic_depth": 0.5, "stochastic_mode": "drop_path"}), ("tiny_shake", {})],
)
def test_an_image_that_cannot_be_read_leaves_noise_for_the_others(tmp_path, monkeypatch, model, recipe):
    read = ImageSet.read

    def read_but_one(self, requests, normalise):
        for images, labels in read(self, requests, normalise):
            yield images[1:], labels[1:]

    monkeypatch.setattr(ImageSet, "read", read_but_one)
    config = tiny_config(tmp_path / "a", model=model, recipe={"epochs": 1, "milestones": (), **recipe})
    taken = []

    def keep(network, args, options):
        if network.training:
            taken.append((len(args[0]), options["noise"]))

    with Trainer(config, True) as trainer:
        trainer.network.register_forward_pre_hook(keep, with_kwargs=True)
        fit(trainer, StopRequest())
    assert [count for count, _ in taken] == [255, 255, 255, 255, 255, 216]
    for step, (count, noise) in enumerate(taken):
        torch.testing.assert_close(noise, trainer.network.draw(config.seed, step, range(count)), rtol=0, atol=0)


def test_a_second_run_in_the_same_process_is_refused(tmp_path):
    """Threads share torch's generator: four runs of one seed differed without a word."""
    refused = []

    class Second(Callback):
        def step(self, trainer):
            def another():
                with pytest.raises(UserError, match="another run is being trained in this process"):
                    train(tiny_config(tmp_path / "b", model="tiniest"))
                refused.append(True)

            thread = threading.Thread(target=another)
            thread.start()
            thread.join()

    config = tiny_config(tmp_path / "a", model="tiniest", recipe={"epochs": 1, "batch_size": 1497})
    train(config, callbacks=[Second()])
    assert refused == [True] and not (tmp_path / "b").exists()
    train(dataclasses.replace(config, out=str(tmp_path / "b")))  # one after the other


def test_a_converted_network_trains_as_ours_does(tmp_path):
    """Stochastic depth and the running cost, by the same loop: the same weights after an epoch."""
    torch.manual_seed(0)
    ours = cifar_resnet(14, pre_activation=True, scheme="lm", in_channels=1, stochastic_depth=0.5, k=-0.1).double()
    plain = Unstaged(copy.deepcopy(ours))
    example = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    converted = stepnet.convert(plain, "lm", example, init=-0.1, stochastic_depth=0.5)
    recipe = {"running_cost": "kinetic", "kinetic": 0.01, "epochs": 1, "milestones": ()}
    for name, network in (("ours", ours), ("converted", converted)):
        network.register_forward_pre_hook(lambda module, args: (args[0].double(), *args[1:]))
        train_config(tiny_config(tmp_path / name, model=name, recipe=recipe), network=network, data=get_data("digits"))
    trained = dict(converted.named_parameters())
    for name, parameter in Unstaged(ours).named_parameters():
        torch.testing.assert_close(trained[name], parameter, rtol=1e-6, atol=1e-7)
    ks = [list(stepnet.coefficients(network).values()) for network in (ours, converted)]
    assert ks[0] == pytest.approx(ks[1], rel=1e-6) and -0.1 not in ks[0]
