"""`stepnet.train`: any network, any data with a length and items; the same call goes on to the same bits."""

import json

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import stepnet
from data.photographs import write_photos
from stepnet import UserError
from stepnet.training import Recipe, TrainConfig, get_recipe
from stepnet.training.saving import Interrupted
from training.runs import StopAt, assert_same_run
from training.tiny import RECIPE


class Noisy(Dataset):
    """Bright or dark squares, with a random transform of its own."""

    classes = ("dark", "bright")

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((1, 8, 8), index % 2 - 0.5) + torch.randn(1, 8, 8), index % 2


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten())
        self.head = nn.Linear(4 * 36, 2)

    def forward(self, x):
        return self.head(self.layers(x))


def small():
    torch.manual_seed(0)
    return Small()


def test_a_module_and_a_dataset_are_trained_and_go_on_to_the_same_bits(tmp_path):
    recipe = Recipe(epochs=2, batch_size=32, lr=0.05, milestones=())
    data = Noisy(128), Noisy(64)
    whole = stepnet.train(small(), data, recipe, out=tmp_path / "whole")
    with pytest.raises(Interrupted):
        stepnet.train(small(), data, recipe, out=tmp_path / "a", callbacks=[StopAt(1, 2)])
    assert_same_run(stepnet.train(small(), data, recipe, out=tmp_path / "a"), whole)
    assert whole.metrics()[-1]["loss"] < whole.metrics()[0]["loss"]
    assert whole.config.model.endswith("test_entry.Small") and "128+64 items" in whole.config.data
    with pytest.raises(UserError, match=r"another run: data = .*128\+64 items.*130\+64 items"):
        stepnet.train(small(), (Noisy(130), Noisy(64)), recipe, out=tmp_path / "a")


class Squares(Noisy):
    """Without a random transform, unless `noise` says how much."""

    def __init__(self, noise=0.0, count=64):
        super().__init__(count)
        self.noise = noise

    def __getitem__(self, index):
        return torch.full((1, 8, 8), index % 2 - 0.5) + self.noise * torch.randn(1, 8, 8), index % 2


ONE_EPOCH = Recipe(epochs=1, batch_size=32, lr=0.05, milestones=())


def test_other_data_under_the_same_name_is_refused(tmp_path):
    first, other = ((Squares(noise), Squares(noise)) for noise in (0.0, 5.0))
    run = stepnet.train(small(), first, ONE_EPOCH, out=tmp_path / "a")
    before = run.metrics_file.read_text()
    with pytest.raises(UserError, match=r"another run: data_fingerprint = '64\+64 images.*; name another --out, or"):
        stepnet.train(small(), other, ONE_EPOCH, out=tmp_path / "a")
    assert run.metrics_file.read_text() == before
    again = stepnet.train(small(), other, ONE_EPOCH, out=tmp_path / "a", overwrite=True)
    assert again.metrics()[0]["loss"] != run_loss(before)


def run_loss(text):
    return json.loads(text.splitlines()[0])["loss"]


def test_photos_that_were_added_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPNET_DATA", str(tmp_path / "cache"))
    write_photos(tmp_path / "photos", each=3, size=(8, 8))
    options = {"out": tmp_path / "a", "image_size": 8, "recipe": RECIPE.override({"epochs": 1})}
    stepnet.train("tiniest", tmp_path / "photos", **options)
    stepnet.train("tiniest", tmp_path / "photos", **options)  # the same: nothing is said
    extra = next((tmp_path / "photos" / "train").rglob("*.*"))
    (extra.parent / f"more{extra.suffix}").write_bytes(extra.read_bytes())
    with pytest.raises(UserError, match=r"another run: data_fingerprint = "):
        stepnet.train("tiniest", tmp_path / "photos", **options)


def test_another_network_of_the_same_class_is_refused_and_keeps_its_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no `out`: both calls have the same default folder
    data = Squares(), Squares()
    first = stepnet.train(small(), data, ONE_EPOCH)
    torch.manual_seed(99)
    other = Small()
    weights = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with pytest.raises(UserError, match=r"another run: network_fingerprint = '9 tensors, .* there, '9 ten"):
        stepnet.train(other, data, ONE_EPOCH)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in other.state_dict().items())
    assert stepnet.train(other, data, ONE_EPOCH, out="b").folder != first.folder


def test_a_network_as_the_run_has_left_it_is_the_runs_own(tmp_path):
    data, recipe, out = (Squares(), Squares()), ONE_EPOCH.override({"epochs": 2}), tmp_path / "a"
    whole = stepnet.train(small(), data, recipe, out=tmp_path / "whole")
    network = small()
    for callback in (StopAt(0, 1), StopAt(1, 1)):
        with pytest.raises(Interrupted):
            stepnet.train(network, data, recipe, out=out, callbacks=[callback])  # a cell of a notebook, run again
    opened = stepnet.load(out / "last.safetensors", model=Small())
    assert_same_run(stepnet.train(opened, data, recipe, out=out), whole)
    stepnet.train(opened, data, recipe, out=out)


def test_a_run_without_fingerprints_resumes_and_stays_without(tmp_path):
    data, recipe, out = (Squares(), Squares()), ONE_EPOCH.override({"epochs": 2}), tmp_path / "a"
    with pytest.raises(Interrupted):
        stepnet.train(small(), data, recipe, out=out, callbacks=[StopAt(1, 1)])
    config = out / "config.yaml"
    config.write_text("".join(line for line in config.open() if "fingerprint" not in line))
    run = stepnet.train(Small(), (Squares(1.0), Squares(1.0)), recipe, out=out)
    assert (run.config.data_fingerprint, run.config.network_fingerprint) == (None, None)
    assert len(run.metrics()) == 2


def test_a_model_by_name_with_options_and_a_share_for_validation(tmp_path):
    run = stepnet.train(
        "tiniest:euler,dt=0.5", Noisy(80), RECIPE.override({"epochs": 1}), out=tmp_path / "a", val_share=0.2, seed=3
    )
    config = run.config
    assert (config.model, config.scheme, config.model_kwargs, config.seed) == ("tiniest", "euler", {"dt": 0.5}, 3)
    assert run.metrics()[0]["k"] == {}
    assert stepnet.load(run.folder).stages[0].dts[0] == 0.5


def test_fields_of_the_recipe_are_keywords(tmp_path):
    run = stepnet.train("tiniest", Noisy(80), "fast", out=tmp_path / "a", val_share=0.2, epochs=1, lr=0.01)
    assert run.config.recipe == get_recipe("fast").override({"epochs": 1, "lr": 0.01})


def pixels(labels):
    return TensorDataset(torch.zeros(len(labels), 1, 8, 8), torch.tensor(labels))


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((TrainConfig("tiny"), "digits"), {}, "a TrainConfig holds all settings"),
        (("tiny", "digits"), {"sede": 1}, "train takes no option 'sede'"),
        (
            ("tiny", type("Stream", (IterableDataset,), {"__iter__": iter})()),
            {},
            "neither be shuffled nor resumed to the bit",
        ),
        (("tiny", "digits", "fats"), {}, "did you mean 'fast'"),
        ((small(), "digits"), {"scheme": "lm"}, "for a model by name"),
        ((small(), "digits"), {"weights": "none.safetensors"}, "for a model by name"),
        ((small(), "digits"), {"sync_bn": True}, "for a model by name"),
        (("tiny,dtt=0.5", "digits"), {}, "takes no option 'dtt': did you mean 'dt'"),
        (("tiny", "digits"), {"epoch": 1}, "train takes no option 'epoch': did you mean 'epochs'"),
        (("tiny", "digits"), {"epochs": 0}, "epochs = 0: expected 1 or more"),
        (("tiny", (DataLoader(Noisy(8)), DataLoader(Noisy(8)))), {}, "expected its Dataset, as in data=(train.dataset"),
        (("tiny", DataLoader(Noisy(8))), {}, "data is a DataLoader: expected its Dataset"),
        ((small(), "digits"), {}, "Small: 2 outputs, and labels from 0 to 9: expected 10 outputs or more"),
        ((small(), (pixels([1, 2]), pixels([1, 2]))), {}, "Small: 2 outputs, and labels from 0 to 2: expected 3"),
        ((small(), (pixels([-1, 1]), pixels([0, 1]))), {}, "TensorDataset[0]: label -1: expected a whole number"),
        ((small(), (pixels([0.0, 1.0]), pixels([0, 1]))), {}, "labels of type float32"),
        ((nn.Conv2d(1, 2, 3), (pixels([0, 1]), pixels([0, 1]))), {}, "shape [2, 2, 6, 6]: expected one for each class"),
        ((nn.Flatten(), (pixels([0, 1]), pixels([0, 1]))), {}, "a Flatten without parameters"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # an address differs between processes
)
def test_a_mistake_is_one_line_and_nothing_is_written(tmp_path, monkeypatch, arguments, options, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        stepnet.train(*arguments, **options)
    assert said in str(refused.value) and "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())
