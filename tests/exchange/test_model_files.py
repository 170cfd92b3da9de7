"""`stepnet.load` and `stepnet.save`."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import stepnet
from exchange.greys import GREY
from stepnet import UserError
from stepnet.exchange.model_description import TrainingRecord, describe_network, description_of
from stepnet.exchange.model_files import write_model
from training.tiny import tiny_config

X = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def network():
    torch.manual_seed(0)
    network = stepnet.create_model("lm_resnet20", in_channels=1, num_classes=3, k_per_channel=True)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
    return network.eval()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from stepnet.training import train

    return train(tiny_config(tmp_path_factory.mktemp("run") / "run", recipe={"epochs": 1, "milestones": ()}))


def test_a_saved_network_is_loaded_ready_for_use(tmp_path, network):
    path = tmp_path / "model.safetensors"
    stepnet.save(network.train(), path, classes=["ant", "bee", "cat"], preprocessing=GREY, license="CC0-1.0")
    for where in (path, str(path), tmp_path, str(tmp_path)):
        loaded = stepnet.load(where)
        assert not loaded.training and torch.equal(loaded(X), network.eval()(X))
    description = loaded.description
    assert (description.model, description.classes) == ("lm_resnet20", ("ant", "bee", "cat"))
    assert description.options == {"in_channels": 1, "num_classes": 3, "k_per_channel": True}
    assert description.k == stepnet.coefficients(network)
    assert description.versions["torch"] == str(torch.__version__)
    pixels = np.full((8, 8), 51, np.uint8)
    assert torch.allclose(loaded.preprocess(pixels), torch.full((1, 1, 8, 8), (0.2 - 0.5) / 0.25))


def test_load_state_dict_takes_the_weights_as_they_are(tmp_path, network, run):
    stepnet.save(network, tmp_path / "a.safetensors")
    other = stepnet.create_model("lm_resnet20", in_channels=1, num_classes=3, k_per_channel=True)
    other.load_state_dict(load_file(tmp_path / "a.safetensors"))
    assert torch.equal(other.eval()(X), network.eval()(X))
    for file in (run.model, run.best):
        trained = stepnet.create_model("tiny", in_channels=1)
        trained.load_state_dict(load_file(file))
        assert torch.equal(trained.eval()(X), stepnet.load(file)(X))


def test_a_run_is_loaded_by_its_folder(tmp_path, run):
    loaded = stepnet.load(run.folder)
    training = loaded.description.training
    assert (training.data, training.epochs, training.seed) == ("digits", 1, 0)
    assert training.test_error == run.metrics()[-1]["test_error"]
    assert training.recipe["batch_size"] == 256 and training.revision
    assert loaded.description.classes == tuple("0123456789")
    assert torch.equal(stepnet.load(run.last)(X), loaded(X))  # the resume state says what it is too
    assert stepnet.load(run.best).description == loaded.description
    stepnet.save(loaded, tmp_path / "a.safetensors")
    assert stepnet.load(tmp_path / "a.safetensors").description == loaded.description


def test_no_data_set_and_no_training_are_needed(tmp_path, run):
    """On a machine without the data: neither the data room's readers nor the training room is asked."""
    program = (
        "import sys, stepnet, torch, stepnet.data as data; "
        "data.get_data = data.datasets.get_data = lambda *a: sys.exit('asked for data'); "
        f"print(stepnet.load({str(tmp_path / 'm.safetensors')!r})(torch.zeros(1, 1, 8, 8)).shape); "
        "assert not any(name.startswith('stepnet.training') for name in sys.modules)"
    )
    stepnet.save(stepnet.create_model("preact_resnet20", in_channels=1), tmp_path / "m.safetensors")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "torch.Size([1, 10])\n"


def test_weights_that_were_trained_on_have_no_known_error(tmp_path, network):
    known = TrainingRecord(data="digits", epochs=1, test_error=2.0)
    write_model(tmp_path / "a", network.state_dict(), describe_network(network, "abc", GREY, known))
    loaded = stepnet.load(tmp_path / "a")
    stepnet.save(loaded, tmp_path / "b")
    assert stepnet.load(tmp_path / "b").description.training == known
    loaded.head.bias.data += 1
    stepnet.save(loaded, tmp_path / "b")
    assert stepnet.load(tmp_path / "b").description.training is None
    assert stepnet.load(tmp_path / "b").description.classes == ("a", "b", "c")
    loaded.reset_classifier(5)  # of other classes than those that had names
    stepnet.save(loaded, tmp_path / "c")
    assert stepnet.load(tmp_path / "c").description.classes == ()
    assert stepnet.load(tmp_path / "c").num_classes == 5


def test_a_network_of_another_program_is_filled(tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 2)).eval()
    stepnet.save(network, tmp_path / "a", classes=["no", "yes"])
    with pytest.raises(
        UserError, match=r"holds a torch\.nn\.modules\.container\.Sequential, which stepnet cannot build"
    ):
        stepnet.load(tmp_path / "a")
    other = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 2))
    loaded = stepnet.load(tmp_path / "a", model=other)
    assert loaded is other and torch.equal(loaded(X), network(X)) and description_of(loaded).classes == ("no", "yes")


def test_weights_without_a_description_are_opened_by_naming_the_model(tmp_path, network):
    path = tmp_path / "a.safetensors"
    save_file(network.state_dict(), path)
    with pytest.raises(UserError, match=r"without a description of their network: name it, as in load\(path, model="):
        stepnet.load(path)
    loaded = stepnet.load(path, model="lm_resnet20", k_per_channel=True)  # classes and channels from the shapes
    assert torch.equal(loaded(X), network(X))
    with pytest.raises(UserError, match="weights of another network than 'lm_resnet32'"):
        stepnet.load(path, model="lm_resnet32", k_per_channel=True)
    with pytest.raises(UserError, match="unknown model 'lm_resnet2O'"):
        stepnet.load(path, model="lm_resnet2O")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "preact_resnet20"}, "cannot be built from its description: k_per_channel"),
        (
            {"model": "preact_resnet20", "options": {"num_classes": 3}},
            "another network than .preact_resnet20",
        ),
        ({"options": {"num_classes": 10**6, "in_channels": 10**6}}, "weights of another network"),  # 4 TB, never made
        ({"options": {"num_classes": -1}}, "cannot be built from its description: num_classes = -1"),
        (
            {"options": {"dropout": 1}},
            "cannot be built from its description: model 'lm_resnet20' takes no option 'dropout'",
        ),
        ({"model": "keras/x"}, "cannot be built from its description"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(tmp_path, network, change, said):
    write_model(tmp_path / "a", network.state_dict(), replace(describe_network(network), **change))
    with pytest.raises(UserError, match=said) as refused:
        stepnet.load(tmp_path / "a")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", "[" * 100_000, '{"model": 1}'),
        '{"model": "x", "training": {"data": "d", "epochs": -1}}',
        '{"model": "x", "preprocessing": {"channels": 1, "image_size": 8, "resize": 8, "mean": [0], "std": [0]}}',
    ],
)
def test_a_damaged_description_is_one_line(tmp_path, text):
    save_file({"w": torch.zeros(1)}, tmp_path / "a", metadata={"stepnet": text})
    with pytest.raises(UserError, match="is damaged: its description cannot be read") as refused:
        stepnet.load(tmp_path / "a")
    assert "\n" not in str(refused.value)


def test_weights_that_are_not_finite_are_refused(tmp_path, network):
    network.head.bias.data[1] = float("nan")
    write_model(tmp_path / "a", network.state_dict(), describe_network(network))
    with pytest.raises(UserError, match=r"'head\.bias' holds values that are not finite"):
        stepnet.load(tmp_path / "a")
    with pytest.raises(UserError, match="not finite"):
        stepnet.save(network, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_folder_that_is_none_of_ours(tmp_path):
    with pytest.raises(UserError, match="is neither a run nor a model"):
        stepnet.load(tmp_path)
    (tmp_path / "config.yaml").write_text("model: x")
    with pytest.raises(UserError, match="has no checkpoint yet"):
        stepnet.load(tmp_path)


def test_what_would_be_ignored_is_refused(tmp_path, network):
    with pytest.raises(UserError, match="2 classes for a network of 3"):
        stepnet.save(network, tmp_path / "model.safetensors", classes=("a", "b"))
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="load takes no option 'num_classes' here"):
        stepnet.load("lm_resnet20.digits", num_classes=7)
