"""`stepnet.train`: any network, any data with a length and items; the same call goes on to the same bits."""

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import stepnet
from stepnet import UserError
from stepnet.training import Recipe, TrainConfig
from stepnet.training.signals import Interrupted
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
        stepnet.train(small(), data, recipe, out=tmp_path / "a", watcher=StopAt(1, 2))
    torch.manual_seed(99)
    again = Small()  # other weights: the checkpoint has those that count
    assert_same_run(stepnet.train(again, data, recipe, out=tmp_path / "a"), whole)
    assert whole.metrics()[-1]["loss"] < whole.metrics()[0]["loss"]
    assert whole.config.model.endswith("test_entry.Small") and "128+64 items" in whole.config.data
    with pytest.raises(UserError, match=r"another run: data = .*128\+64 items.*130\+64 items"):
        stepnet.train(small(), (Noisy(130), Noisy(64)), recipe, out=tmp_path / "a")


def test_a_model_by_name_with_options_and_a_share_for_validation(tmp_path):
    run = stepnet.train(
        "tiniest:euler,dt=0.5", Noisy(80), RECIPE.override({"epochs": 1}), out=tmp_path / "a", val_share=0.2, seed=3
    )
    config = run.config
    assert (config.model, config.scheme, config.model_kwargs, config.seed) == ("tiniest", "euler", {"dt": 0.5}, 3)
    assert run.metrics()[0]["k"] == {}
    assert stepnet.load(run.folder).stages[0].dt == 0.5


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((TrainConfig("tiny"), "digits"), {}, "a TrainConfig says everything"),
        (("tiny", "digits"), {"sede": 1}, "train takes no option 'sede'"),
        (
            ("tiny", type("Stream", (IterableDataset,), {"__iter__": iter})()),
            {},
            "neither order nor resuming to the bit",
        ),
        (("tiny", "digits", "fats"), {}, "did you mean 'fast'"),
        ((small(), "digits"), {"scheme": "lm"}, "for a model by name"),
        ((small(), "digits"), {"weights": "none.safetensors"}, "for a model by name"),
        ((small(), "digits"), {"sync_bn": True}, "for a model by name"),
        (("tiny,dtt=0.5", "digits"), {}, "takes no option 'dtt': did you mean 'dt'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # an address differs between processes
)
def test_a_mistake_is_one_line_and_nothing_is_written(tmp_path, monkeypatch, arguments, options, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        stepnet.train(*arguments, **options)
    assert said in str(refused.value) and "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())
