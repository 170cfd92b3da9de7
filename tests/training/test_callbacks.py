"""Optimisers, schedules and callbacks that others bring: against plain torch, and stopped and resumed to the bit."""

import runpy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import stepnet
from stepnet.data import get_data
from stepnet.training import Callback, Recipe, RunHistory, train
from stepnet.training.saving import Interrupted
from stepnet.training.tasks import TASKS
from training.runs import StopAt, assert_same_run
from training.tiny import read_all

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "callbacks.py"))
GENERATOR = torch.Generator().manual_seed(0)
SETS = [
    TensorDataset(torch.randn(n, 2, 3, 3, generator=GENERATOR), torch.randint(3, (n,), generator=GENERATOR))
    for n in (22, 9)
]
ADAMW = Recipe(
    epochs=3, batch_size=8, optimizer="adamw", lr=0.02, schedule="cosine", warmup=0.2, milestones=(), weight_decay=0.1
)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(18, 6), nn.Tanh(), nn.Linear(6, 3)).double()


class InDouble(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, x):
        return self.inner(x.double())


class Batches(Callback):
    """Keeps what the run is trained on, which the reference below is trained on too."""

    def __init__(self):
        self.seen = []

    def start(self, trainer):
        trainer.network.register_forward_pre_hook(lambda module, inputs: self.keep(module, inputs[0]))

    def keep(self, module, inputs):
        if module.training:
            self.seen.append(inputs.clone())


@pytest.mark.parametrize(
    "changes", [{}, {"clip": 0.05}, {"accumulate": 3}, {"schedule": "constant"}, {"optimizer": "rmsprop"}], ids=str
)
def test_a_run_is_what_plain_torch_does(tmp_path, changes):
    recipe = ADAMW.override(changes)
    keeper = Batches()
    trained = train(InDouble(), SETS, recipe, out=tmp_path / "a", callbacks=[keeper])
    labels = {tuple(x.flatten().tolist()): y for x, y in SETS[0]}
    reference = network()
    kind = torch.optim.RMSprop if "optimizer" in changes else torch.optim.AdamW
    optimizer = kind(reference.parameters(), lr=1.0, weight_decay=0.1)
    parts = iter(keeper.seen)
    for epoch in range(3):
        for step, size in enumerate((8, 8, 6)):
            batch = torch.cat([next(parts) for _ in range(recipe.accumulate)])
            assert len(batch) == size
            targets = torch.stack([labels[tuple(x.flatten().tolist())] for x in batch])
            loss = F.cross_entropy(reference(batch.double()), targets)
            optimizer.zero_grad()
            loss.backward()
            if recipe.clip:
                torch.nn.utils.clip_grad_norm_(reference.parameters(), recipe.clip)
            time, rise = epoch + step / 3, 0.2 * 3
            fall = 1.0 if recipe.schedule == "constant" else 0.5 * (1 + cosine((time - rise) / 2.4))
            for group in optimizer.param_groups:
                group["lr"] = 0.02 * min((time + 0.01) / rise, 1.0, fall if time > rise else 1.0)
            optimizer.step()
    found = {name.removeprefix("model.inner."): t for name, t in read_all(trained.last).items() if "model." in name}
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-12)


def cosine(share):
    return float(torch.cos(torch.tensor(torch.pi * share, dtype=torch.float64)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ema": 0.8},
        {"optimizer": "adafactor", "lr": 0.05},
        {"optimizer": "nadam"},
        {"optimizer": "sgd", "momentum": 0.0, "clip": 0.1, "accumulate": 2},
    ],
    ids=str,
)
def test_any_optimiser_resumes_to_the_bit(tmp_path, changes):
    recipe = ADAMW.override(changes)
    whole = train(network_of_floats(), SETS, recipe, out=tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(network_of_floats(), SETS, recipe, out=tmp_path / "a", callbacks=[StopAt(1, 2)])
    assert_same_run(train(network_of_floats(), SETS, recipe, out=tmp_path / "a"), whole)


def network_of_floats():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 2), nn.BatchNorm2d(4), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 3))


def test_the_average_is_evaluated_and_written(tmp_path):
    run = train(network_of_floats(), SETS, ADAMW.override({"ema": 0.8}), out=tmp_path / "a")
    kept = read_all(run.last)
    average = {name.removeprefix("callbacks.WeightAverage.module."): t for name, t in kept.items() if "Average" in name}
    written = read_all(run.model)
    assert all(torch.equal(written[name], average[name]) for name in written)
    assert not torch.equal(written["0.weight"], kept["model.0.weight"])
    plain = train(network_of_floats(), SETS, ADAMW, out=tmp_path / "b")
    assert torch.equal(read_all(plain.last)["model.0.weight"], kept["model.0.weight"])  # training itself is the same
    weights = []

    class Keep(Callback):
        def step(self, trainer):
            weights.append(trainer.network[0].weight.detach().clone())

    train(network_of_floats(), SETS, ADAMW, out=tmp_path / "c", callbacks=[Keep()])
    mean = weights[0]
    for each in weights[1:]:
        mean = 0.8 * mean + 0.2 * each
    torch.testing.assert_close(written["0.weight"], mean)


def test_the_callbacks_of_the_example_resume_to_the_bit(tmp_path):
    recipe = ADAMW.override({"epochs": 6})

    def run(name, *others):
        callbacks = [EXAMPLE["EarlyStopping"](patience=1), EXAMPLE["Average"](start_epoch=1), *others]
        return train(network_of_floats(), SETS, recipe.override({"lr": 0.5}), out=tmp_path / name, callbacks=callbacks)

    whole = run("whole")
    assert 1 < len(whole.metrics()) < 6 and whole.metrics()[-1]["stopped"] and RunHistory.read(whole.folder).complete
    with pytest.raises(Interrupted):
        run("a", StopAt(1, 1))
    assert_same_run(run("a"), whole)
    run("a")  # stopped early is done
    assert len(run("a").metrics()) == len(whole.metrics())


def test_a_callback_with_a_state_belongs_to_its_run(tmp_path):
    with pytest.raises(Interrupted):
        train(network_of_floats(), SETS, ADAMW.override({"ema": 0.5}), out=tmp_path / "a", callbacks=[StopAt(1, 1)])
    with pytest.raises(stepnet.UserError, match=r"was saved without the callback EarlyStopping: resume with"):
        callbacks = [EXAMPLE["EarlyStopping"]()]
        train(network_of_floats(), SETS, ADAMW.override({"ema": 0.5}), out=tmp_path / "a", callbacks=callbacks)


def test_an_optimiser_that_torch_has_not_is_named(tmp_path):
    with pytest.raises(stepnet.UserError, match="unknown optimizer 'adamv': did you mean 'adam'"):
        train(network_of_floats(), SETS, ADAMW.override({"optimizer": "adamv"}), out=tmp_path / "a")


def test_the_best_epoch_is_chosen_on_the_validation_set(tmp_path, capsys):
    recipe = ADAMW.override({"epochs": 4})
    run = train(InDouble(), SETS, recipe, out=tmp_path / "a", holdout=0.3)
    lines = run.metrics()
    chosen = min(lines, key=lambda line: line["val_error"])
    assert stepnet.load(run.best, model=InDouble()).description.training.epochs == chosen["epoch"] + 1
    history = RunHistory.read(run.folder)
    assert history.best_score == chosen["test_error"] and history.has_validation
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch 1/4")]
    assert f"  val {lines[0]['val_error']:.2f}%  " in shown[0] and "test" not in shown[0]


class NoisyDouble(InDouble):
    """That never learns: its outputs have nothing to do with its inputs."""

    def forward(self, x):
        return super().forward(x * 0)


@pytest.mark.parametrize("stop", [None, (1, 2)])
def test_early_stopping_waits_for_so_many_epochs_and_resumes(tmp_path, stop):
    recipe = ADAMW.override({"epochs": 9, "patience": 2, "lr": 1e-9})
    options = {"holdout": 0.3, "out": tmp_path / "a"}
    torch.manual_seed(0)
    weights = NoisyDouble().state_dict()

    def same():
        built = NoisyDouble()
        built.load_state_dict(weights)
        return built

    if stop:
        with pytest.raises(Interrupted):
            train(same(), SETS, recipe, callbacks=[StopAt(*stop)], **options)
    run = train(same(), SETS, recipe, **options)
    assert len(run.metrics()) == 3 and run.metrics()[-1]["stopped"]  # the first was the best, two were waited for


def test_balanced_classes_weigh_in_inverse_proportion(tmp_path):
    labels = torch.tensor([0] * 6 + [1] * 2)
    data = get_data((TensorDataset(torch.zeros(8, 1, 2, 2), labels),) * 2)
    outputs = torch.randn(8, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    loss = TASKS["classification"](data).training_loss(outputs, labels, Recipe(class_weights="balanced"))
    losses = -outputs.log_softmax(1)[torch.arange(8), labels]
    assert float(loss) == pytest.approx(float(8 / (2 * 6) * losses[:6].sum() + 8 / (2 * 2) * losses[6:].sum()))
