"""A task of one's own is one file: it is trained, stopped, resumed to the bit, compared and reported."""

import importlib.util
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import nn
from torch.utils.data import TensorDataset

import stepnet
from stepnet.cli import main
from stepnet.data import Data, ImageSet, get_data
from stepnet.exchange.model_files import load
from stepnet.training import Metric, Recipe, Run, Task, evaluate, register_task, train
from stepnet.training.saving import Interrupted
from stepnet.training.tasks import Classification, TaskRecord
from training.runs import StopAt, assert_same_run

REGRESSION = '''
import math
import torch
import torch.nn.functional as F
from stepnet.training import Metric, Task, register_task


@register_task("regression_of_mine")
class Regression(Task):
    """Squared distance of outputs [batch, n] to targets [batch, n]."""

    metrics = (Metric("rmse", "root mean square"), Metric("close", "within a half", "%", higher_is_better=True))

    def loss(self, outputs, targets):
        return F.mse_loss(outputs, targets, reduction="none").mean(1).sum()

    def sums(self, outputs, targets):
        return {"close": ((outputs - targets).abs().amax(1) < 0.5).sum()}

    def figures(self, means):
        return {"rmse": math.sqrt(means["loss"]), "close": 100 * means["close"]}
'''
RECIPE = Recipe(epochs=3, batch_size=16, lr=0.02, milestones=())


def import_text(folder, text):
    file = folder / "mine.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("mine", file)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def line(count, seed):
    """Vectors x and the targets A x."""
    inputs = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(inputs, inputs @ torch.tensor([[1.0, -1.0], [0.5, 0], [0, 2], [1, 1], [-1, 0.3]]))


def linear():
    torch.manual_seed(0)
    return nn.Linear(5, 2)


@pytest.mark.usefixtures("registries")
def test_regression_by_a_user_in_one_file(tmp_path, capsys):
    import_text(tmp_path, REGRESSION)
    data = line(90, seed=1), line(30, seed=2)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run = train(linear(), data, RECIPE, out=whole, task="regression_of_mine")
    with pytest.raises(Interrupted):
        train(linear(), data, RECIPE, out=stopped, task="regression_of_mine", callbacks=[StopAt(1, 2)])
    assert_same_run(train(linear(), data, RECIPE, out=stopped, task="regression_of_mine"), run)
    with pytest.raises(stepnet.UserError, match="another run"):
        train(linear(), (line(90, 3), line(30, 4)), RECIPE, out=stopped, task="regression_of_mine")

    epochs = run.metrics()
    network = nn.Linear(5, 2)
    network.load_state_dict(load(run.folder, model=nn.Linear(5, 2)).state_dict())
    with torch.no_grad():
        gaps = network(data[1].tensors[0]) - data[1].tensors[1]
    assert epochs[-1]["test_rmse"] == pytest.approx(gaps.square().mean().sqrt().item(), rel=1e-5)
    assert epochs[-1]["test_close"] == pytest.approx(100 * (gaps.abs().amax(1) < 0.5).float().mean().item())
    assert epochs[-1]["test_rmse"] < epochs[0]["test_rmse"] and "items_per_second" in epochs[0]
    assert "error" not in epochs[0] and run.config.task.name == "regression_of_mine"

    rows = stepnet.training.NetworkRuns("linear", tuple(stepnet.training.RunHistory.read(f) for f in (whole, stopped)))
    assert rows.scores == [epochs[-1]["test_rmse"]] * 2 and rows.difference(rows).mean == 0
    page = tmp_path / "page.html"
    assert main(["report", str(whole), str(stopped), "-o", str(page)]) == 0
    text = page.read_text()
    assert "Root mean square, last epoch" in text and "Within a half (%)" in text and "Items/s" in text
    assert f"{epochs[-1]['test_rmse']:.4f}" in text and '"heading":"root mean square"' in text


@pytest.mark.usefixtures("registries")
def test_a_report_needs_no_code_of_the_task(tmp_path, registries):
    import_text(tmp_path, REGRESSION)
    run = train(linear(), (line(40, 1), line(20, 2)), RECIPE, out=tmp_path / "run", task="regression_of_mine")
    from stepnet.training.tasks import TASKS

    del TASKS.entries["regression_of_mine"]
    assert Run(run.folder).metrics() == run.metrics()
    assert main(["report", str(run.folder), "-o", str(tmp_path / "page.html")]) == 0
    with pytest.raises(stepnet.UserError, match="unknown task 'regression_of_mine'"):
        train(linear(), (line(40, 1), line(20, 2)), RECIPE, out=tmp_path / "run", task="regression_of_mine")


@pytest.mark.usefixtures("registries")
def test_next_token_fits_the_same_protocol(tmp_path):
    """Inputs and targets [batch, time]: the loss of an item is its mean over time."""

    @register_task("tokens_of_mine")
    class NextToken(Task):
        items = "sequences"
        metrics = (Metric("perplexity"), Metric("bits_per_character"))

        def loss(self, outputs, targets):
            return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum") / targets.shape[1]

        def figures(self, means):
            return {"perplexity": math.exp(means["loss"]), "bits_per_character": means["loss"] / math.log(2)}

    tokens = torch.arange(40)[:, None].add(torch.arange(9)).remainder(7)
    data = [TensorDataset(tokens[:30, :-1], tokens[:30, 1:]), TensorDataset(tokens[30:, :-1], tokens[30:, 1:])]
    torch.manual_seed(0)
    network = nn.Sequential(nn.Embedding(7, 16), nn.Linear(16, 7))
    run = train(network, data, RECIPE.override({"lr": 1.0}), out=tmp_path / "a", task="tokens_of_mine")
    last = run.metrics()[-1]
    assert last["test_perplexity"] == pytest.approx(math.exp(last["test_loss"]))
    assert last["test_bits_per_character"] == pytest.approx(math.log2(last["test_perplexity"]))
    assert last["test_perplexity"] < run.metrics()[0]["test_perplexity"] < 7.5 and "sequences_per_second" in last
    assert evaluate(network_of(run, network), data=get_data(data, of_classes=False)).metrics.keys() == {
        "perplexity",
        "bits_per_character",
    }


def network_of(run, network):
    return load(run.folder, model=network)


@pytest.mark.usefixtures("registries")
def test_a_higher_figure_may_be_the_better_one(tmp_path):
    @register_task("accuracy_of_mine")
    class Accuracy(Classification):
        def __init__(self, data):
            super().__init__(data)
            self.metrics = (Metric("accuracy", unit="%", higher_is_better=True),)

        def figures(self, means):
            return {"accuracy": 100 - 100 * means["wrong"]}

    recipe = Recipe(epochs=4, batch_size=512, lr=0.05, milestones=())
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    run = train(network, "digits", recipe, out=tmp_path / "a", task="accuracy_of_mine")
    scores = [line["test_accuracy"] for line in run.metrics()]
    history = stepnet.training.RunHistory.read(run.folder)
    assert history.best_score == max(scores) > min(scores)
    assert load(run.best, model=network).description.training.epochs == scores.index(max(scores)) + 1


def test_a_run_without_a_task_in_its_config_is_of_classification(tmp_path, write_run):
    folder = write_run(errors=(30.0, 20.0))
    assert "task" not in {k: v for k, v in yaml.safe_load((folder / "config.yaml").read_text()).items() if v}
    history = stepnet.training.RunHistory.read(folder)
    assert history.task == TaskRecord() and history.last_score == 20.0
    assert str(history.task.metric) == "error" and history.task.metric.heading == "error (%)"


def test_classification_counts_the_likeliest_five_beyond_five_classes():
    def of(classes):
        images = ImageSet(np.zeros((1, 2, 2, 1), np.uint8), np.zeros(1, np.int64), tuple(map(str, range(classes))))
        return Classification(Data("made", images, images))

    logits, labels = torch.randn(30, 6), torch.randint(6, (30,))
    assert [metric.name for metric in of(5).metrics] == ["error"] and of(5).test_sums(logits[:, :5], labels).keys() == {
        "wrong"
    }
    found = {name: float(value) / 30 for name, value in of(6).test_sums(logits, labels).items()}
    order = (-logits).argsort(1)
    assert of(6).figures(found) == pytest.approx(
        {
            "error": 100 * float((order[:, 0] != labels).double().mean()),
            "top5_error": 100 * float((order[:, 5] == labels).double().mean()),
        }
    )


def test_label_smoothing_is_of_training_only(tmp_path):
    images = ImageSet(np.zeros((1, 2, 2, 1), np.uint8), np.zeros(1, np.int64), ("a", "b"))
    task, logits, labels = Classification(Data("made", images, images)), torch.randn(4, 2), torch.tensor([0, 1, 1, 0])
    recipe = Recipe(label_smoothing=0.2)
    smooth = torch.full((4, 2), 0.1)
    smooth[torch.arange(4), labels] = 0.9
    expected = -(smooth * logits.log_softmax(1)).sum()
    torch.testing.assert_close(task.training_loss(logits, labels, recipe), expected)
    torch.testing.assert_close(task.loss(logits, labels), -logits.log_softmax(1)[torch.arange(4), labels].sum())


def test_metrics_say_what_they_are():
    error, loss = Metric("error", unit="%"), Metric("rmse", "root mean square")
    assert (error.show(12.5), loss.show(0.12341)) == ("12.50%", "0.1234") and loss.heading == "root mean square"
    assert error.better(1, 2) and not error.better(2, 1) and error.best([3, 1, 2]) == 1
    higher = Metric("accuracy", higher_is_better=True)
    assert higher.better(2, 1) and higher.best([3, 1, 2]) == 3
