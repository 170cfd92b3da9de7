"""What a run is made of, as a value and as a file."""

import dataclasses
import re

import pytest

from stepnet import UserError
from stepnet.training.config import TrainConfig, default_folder, read_kwargs, read_label, write_label
from stepnet.training.recipes import RECIPES, get_recipe


def test_a_config_is_read_as_it_was_written(tmp_path):
    config = TrainConfig("lm_resnet20", "cifar10", scheme="ab2", recipe=RECIPES["fast"], seed=3)
    config.write(tmp_path / "config.yaml")
    assert TrainConfig.read(tmp_path / "config.yaml") == config


def test_only_what_changes_the_computation_is_a_difference():
    config = TrainConfig("lm_resnet20")
    assert config.differences(dataclasses.replace(config, out="elsewhere", data_root="there")) == []
    [difference] = config.differences(dataclasses.replace(config, recipe=config.recipe.override({"lr": 0.2})))
    assert "lr = 0.1 there, 0.2 here" in difference
    assert config.differences(dataclasses.replace(config, seed=1)) == ["seed = 0 there, 1 here"]
    nested, read = ({"dt": ((1, 0.5), (1,)), "depths": (2, 1)}, {"dt": [[1, 0.5], [1]], "depths": [2, 1]})
    given = dataclasses.replace(config, model_kwargs=nested)
    assert given.differences(dataclasses.replace(config, model_kwargs=read)) == []


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        ("resnet20", ("resnet20", None, {})),
        ("resnet20:lm", ("resnet20", "lm", {})),
        ("timm/resnet18:lm", ("timm/resnet18", "lm", {})),
        ("lm_resnet20,k=-0.5,k_bound=(-1,1)", ("lm_resnet20", None, {"k": -0.5, "k_bound": [-1, 1]})),
        ("resnet20:lm,k_bound=stable", ("resnet20", "lm", {"k_bound": "stable"})),
    ],
)
def test_a_label_is_a_name_a_scheme_and_options(label, parts):
    assert read_label(label) == parts


@pytest.mark.parametrize("text", ["", "[1, 2]", "data: digits", ": :"])
def test_another_file_is_told_in_one_line(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match="not the config of a stepnet run"):
        TrainConfig.read(tmp_path / "config.yaml")


def test_a_label_is_read_as_it_was_written():
    label = read_label("timm/resnet18:lm,k=-0.5,k_bound=stable,widths=(1,2)")
    assert read_label(write_label(label)) == label


@pytest.mark.parametrize("word", ["dt", "dt 3", "=3", "d t=3"])
def test_an_option_without_name_or_value_is_refused(word):
    with pytest.raises(UserError, match=r"expected NAME=VALUE, as in dt=0\.5"):
        read_kwargs([word])


@pytest.mark.parametrize("name", ["num_classes", "in_channels", "in_chans", "features_only", "scheme"])
def test_what_others_say_is_no_option_of_the_model(name):
    with pytest.raises(UserError, match=f"model_kwargs {name} = 3: "):
        TrainConfig("resnet20", model_kwargs={name: 3})


def test_default_folders_tell_apart_what_was_changed():
    base = TrainConfig("lm_resnet20", "cifar10", recipe=RECIPES["cifar10"])

    def name(**changes):
        return str(default_folder(dataclasses.replace(base, **changes)))

    def recipe(**changes):
        return base.recipe.override(changes)

    assert name() == "runs/cifar10/lm_resnet20-160ep-seed0"
    assert name(recipe=recipe(epochs=16)) == "runs/cifar10/lm_resnet20-16ep-seed0"  # milestones move along
    assert name(recipe=RECIPES["fast"]) == "runs/cifar10/lm_resnet20-fast-15ep-seed0"
    assert name(recipe=recipe(lr=0.05)) == "runs/cifar10/lm_resnet20-lr=0.05-160ep-seed0"
    assert name(model_kwargs={"dt": 0.5}) == "runs/cifar10/lm_resnet20-dt=0.5-160ep-seed0"
    assert name(data="/photos/my cats") == "runs/my-cats/lm_resnet20-160ep-seed0"
    long = name(model_kwargs={f"option_{n}": "x" * 90 for n in range(5)})
    assert len(long) < 200 and long != name(model_kwargs={f"option_{n}": "y" * 90 for n in range(5)})


@pytest.mark.parametrize(
    ("text", "recipe"),
    [
        ("model: lm_resnet20\nrecipe: fast\n", get_recipe("fast")),
        ("model: lm_resnet20\nrecipe: cifar10\nepochs: 16\n", get_recipe("cifar10").override({"epochs": 16})),
        ("model: lm_resnet20\nepochs: 3\nlr: 0.02\n", get_recipe("digits").override({"epochs": 3, "lr": 0.02})),
        ("model: lm_resnet20\ndata: cifar100\n", get_recipe("cifar100")),
        ("model: lm_resnet20\nrecipe: {batch_size: 9}\n", get_recipe("digits").override({"batch_size": 9})),
    ],
)
def test_a_config_by_hand_names_a_recipe_and_changes_it_at_the_top(tmp_path, text, recipe):
    (tmp_path / "mine.yaml").write_text(text)
    assert TrainConfig.read(tmp_path / "mine.yaml").recipe == recipe


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model: a\nrecipe: fats\n", "unknown recipe 'fats': did you mean 'fast'"),
        ("model: a\nepochs: many\n", "recipe.epochs = 'many': expected a whole number"),
        ("model: a\nepochz: 3\n", "unknown field 'epochz'"),
    ],
)
def test_a_mistake_in_a_config_by_hand_is_named(tmp_path, text, said):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=re.escape(said)):
        TrainConfig.read(tmp_path / "mine.yaml")
