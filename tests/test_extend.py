"""A new scheme, data set, noise, task or callback is one file, with no other change: trained, resumed, reported."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

import stepnet
from stepnet.cli import main
from stepnet.training import Callback, Recipe, Run, evaluate, train
from stepnet.training.saving import Interrupted
from training.runs import StopAt, assert_same_run
from training.tiny import read_all, tiny_config

SCHEME = '''
"""Ralston's method, and nothing else."""
from stepnet.schemes import Scheme, combine, register_scheme


@register_scheme("ralston_of_mine")
class Ralston(Scheme):
    reference, order, stages = "Ralston 1962", 2, 2

    def increment(self, past, dt, k):
        point = past[0]
        second = point.rhs(combine((1, point.u), (2 * dt / 3, point.f)), 2 / 3, 1)
        return combine((dt / 4, point.f), (3 * dt / 4, second))
'''

DATA = '''
"""Bright above or bright below, and nothing else."""
import numpy as np

from stepnet.data import Augmentation, Data, ImageSet, register_data


def halves(count, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    images = rng.integers(0, 128, (count, 8, 8, 1), dtype=np.uint8)
    images[labels == 0, :4] += 100
    images[labels == 1, 4:] += 100
    return ImageSet(images, labels, ("above", "below"), Augmentation(pad=1))


@register_data("halves_of_mine")
def load(root):
    return Data("halves_of_mine", train=halves(800, seed=0), test=halves(200, seed=1))
'''


NOISE = '''
"""A coin is tossed for every number of every f, and nothing else."""
import numpy as np
import sympy

from stepnet import register_noise
from stepnet.schemes.noises import Noise


@register_noise("coins_of_mine")
class Coins(Noise):
    about, additive = "1/10 is added to f or taken from it, equally often", True
    mean, deviation = sympy.S.Zero, sympy.Rational(1, 10)

    def weights(self, eta):
        return 1, eta

    def moment(self, m):
        return sympy.Integer(1 - m % 2)

    def quantile(self, u, time=0.0):
        return np.where(u < 0.5, -1.0, 1.0)

    def quadrature(self, n, time=0.0):
        return np.array([-1.0, 1.0]), np.array([0.5, 0.5])
'''


TRAINING = '''
"""Regression, and a moving average of the weights, which is evaluated and saved."""
import math

import torch
import torch.nn.functional as F

from stepnet.training import Callback, Metric, Task, register_task


@register_task("regression_of_mine")
class Regression(Task):
    metrics = (Metric("rmse"),)

    def loss(self, outputs, targets):
        return F.mse_loss(outputs, targets, reduction="sum")

    def figures(self, means):
        return {"rmse": math.sqrt(means["loss"])}


class MovingAverage(Callback):
    def start(self, trainer):
        average = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        self.average = torch.optim.swa_utils.AveragedModel(trainer.network, multi_avg_fn=average)
        trainer.evaluated = self.average.module

    def step(self, trainer):
        self.average.update_parameters(trainer.network)

    def state_dict(self):
        return dict(self.average.state_dict())

    def load_state_dict(self, state):
        self.average.load_state_dict(state)
'''


def import_file(folder: Path, text: str) -> ModuleType:
    """Import a user's file, as `import mine` does."""
    file = folder / "mine.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("mine", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report_on(run: Run) -> str:
    """Return the page that `stepnet report` writes."""
    page = run.folder / "report.html"
    assert main(["report", str(run.folder), "-o", str(page)]) == 0
    return page.read_text()


def train_and_resume(folder: Path, **changes: object) -> Run:
    whole, stopped = (tiny_config(folder / name, **changes) for name in ("whole", "stopped"))
    with pytest.raises(Interrupted):
        train(stopped, callbacks=[StopAt(1, 2)])
    run = train(stopped)
    assert_same_run(run, train(whole))
    return run


@pytest.mark.usefixtures("registries")
def test_a_new_scheme(tmp_path, capsys) -> None:
    assert sum(line != "" for line in SCHEME.splitlines()) <= 10
    import_file(tmp_path, SCHEME)
    run = train_and_resume(tmp_path, model="tiniest", scheme="ralston_of_mine", recipe={"epochs": 2})
    assert 0 < evaluate(run).error < 100
    assert main(["inspect", str(run.folder), "--out", str(tmp_path / "drawn.svg")]) == 0
    assert "ralston_of_mine" in capsys.readouterr().out and "<svg" in (tmp_path / "drawn.svg").read_text()
    assert stepnet.analysis.order("ralston_of_mine") == 2
    assert stepnet.analysis.stability_interval("ralston_of_mine") == 2
    assert main(["scheme", "ralston_of_mine"]) == 0
    shown = capsys.readouterr().out
    assert "f_2 = f(u_n + 2 dt/3 f_1)\n" in shown and "u_{n+1} = u_n + dt/4 f_1 + 3 dt/4 f_2\n" in shown
    decay = stepnet.solve(lambda t, u: -u, torch.ones(1, dtype=torch.float64), (0.0, 1.0), 10, "ralston_of_mine")
    assert float(decay.u[-1]) == pytest.approx((1 - 0.1 + 0.1**2 / 2) ** 10, abs=1e-12)
    converted = stepnet.convert(torch.nn.Sequential(Decay(), Decay()), "ralston_of_mine", example=torch.ones(1, 4))
    factor = 1 - 1 / 2 + 1 / 8  # one step of length 1 for u' = -u/2
    torch.testing.assert_close(converted(torch.ones(1, 4)), torch.full((1, 4), factor**2))


class Decay(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor(-0.5))

    def forward(self, u):
        return u + self.rate * u


@pytest.mark.usefixtures("registries")
def test_a_new_data_set(tmp_path, capsys) -> None:
    import_file(tmp_path, DATA)
    run = train_and_resume(tmp_path, model="tiniest", data="halves_of_mine", recipe={"epochs": 4, "batch_size": 100})
    assert evaluate(run).error < 25  # chance is 50
    assert main(["inspect", str(run.folder), "--out", str(tmp_path / "drawn.svg")]) == 0
    assert main(["data", "list"]) == 0
    assert "halves_of_mine" in capsys.readouterr().out


@pytest.mark.usefixtures("registries")
def test_a_new_noise(tmp_path, capsys) -> None:
    import_file(tmp_path, NOISE)
    run = train_and_resume(tmp_path, model="tiniest", model_kwargs={"noise": "coins_of_mine"}, recipe={"epochs": 2})
    added = stepnet.load(run.folder).draw(0, 0, range(2))[0].like(torch.zeros(2, 4, 3, 3))
    torch.testing.assert_close(added.abs(), torch.full((2, 4, 3, 3), 0.1))
    assert abs(added.mean()) < 0.05
    assert str(stepnet.analysis.stochastic_equation("coins_of_mine")) == "dX = f dt + 1/10 dB"
    assert stepnet.analysis.weak_order("coins_of_mine", moment=2).slope == pytest.approx(1, abs=0.01)
    assert main(["noise", "coins_of_mine", "--samples", "2000"]) == 0
    assert "(appendix B)\n              holds" in capsys.readouterr().out
    assert "coins_of_mine" in report_on(run)


@pytest.mark.usefixtures("registries")
def test_a_new_task_and_callback_with_adamw(tmp_path) -> None:
    mine = import_file(tmp_path, TRAINING)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(120, 3, generator=generator)
    items = torch.utils.data.TensorDataset(inputs, inputs @ torch.tensor([[1.0], [-2.0], [0.5]]))
    data = (torch.utils.data.Subset(items, range(90)), torch.utils.data.Subset(items, range(90, 120)))
    recipe = Recipe(epochs=3, batch_size=16, optimizer="adamw", lr=0.05, schedule="constant", weight_decay=0.01)

    def trained(name: str, *others: Callback) -> Run:
        torch.manual_seed(1)
        network, callbacks = torch.nn.Linear(3, 1), [mine.MovingAverage(), *others]
        return train(network, data, recipe, out=tmp_path / name, task="regression_of_mine", callbacks=callbacks)

    with pytest.raises(Interrupted):
        trained("stopped", StopAt(1, 2))
    run = trained("stopped")
    assert_same_run(run, trained("whole"))
    state = read_all(run.last)
    assert {f"optimizer.weight.{key}" for key in ("exp_avg", "exp_avg_sq", "step")} <= state.keys()
    assert not torch.equal(state["callbacks.MovingAverage.module.weight"], state["model.weight"])
    saved = stepnet.load(run.model, model=torch.nn.Linear(3, 1))
    assert torch.equal(saved.weight, state["callbacks.MovingAverage.module.weight"])
    first, *_, last = run.metrics()
    assert last["test_rmse"] < first["test_rmse"] and last["test_rmse"] == pytest.approx(last["test_loss"] ** 0.5)
    page = report_on(run)
    assert "rmse" in page and f"{last['test_rmse']:.4f}" in page and "adamw" in page
