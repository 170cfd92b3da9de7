"""What a run is made of, as a value and as a file."""

import dataclasses

import pytest

from stepnet import UserError
from stepnet.training.config import TrainConfig, name_and_scheme
from stepnet.training.recipes import RECIPES


def test_a_config_is_read_as_it_was_written(tmp_path):
    config = TrainConfig("lm_resnet20", "cifar10", scheme="ab2", recipe=RECIPES["fast"], seed=3)
    config.write(tmp_path / "config.yaml")
    assert TrainConfig.read(tmp_path / "config.yaml") == config


def test_only_what_changes_the_computation_is_a_difference():
    config = TrainConfig("lm_resnet20")
    assert config.differences(dataclasses.replace(config, out="elsewhere", data_root="there")) == []
    [difference] = config.differences(dataclasses.replace(config, recipe=config.recipe.override({"lr": 0.2})))
    assert "lr = 0.1 there, 0.2 here" in difference


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        ("resnet20", ("resnet20", None)),
        ("resnet20:lm", ("resnet20", "lm")),
        ("timm/resnet18:lm", ("timm/resnet18", "lm")),
    ],
)
def test_a_label_is_a_name_and_a_scheme(label, parts):
    assert name_and_scheme(label) == parts


@pytest.mark.parametrize("text", ["", "[1, 2]", "model: resnet20", ": :"])
def test_another_file_is_told_in_one_line(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match="not the config of a stepnet run"):
        TrainConfig.read(tmp_path / "config.yaml")
