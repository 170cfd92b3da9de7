"""Weights that come with the package."""

import json

import pytest
import torch

import stepnet
from stepnet import UserError, create_model
from stepnet.cli import main
from stepnet.nets import pretrained
from stepnet.nets.pretrained import list_pretrained, pretrained_file, split_tag

X = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A folder of weights in the place of the package's own."""
    monkeypatch.setattr(pretrained, "WEIGHTS", tmp_path)
    torch.manual_seed(0)
    made = {}
    for name in ("lm_resnet20.digits", "preact_resnet20.digits", "lm_resnet20.cifar10"):
        channels = 1 if name.endswith("digits") else 3
        made[name] = create_model(name.partition(".")[0], in_channels=channels).eval()
        stepnet.save(made[name], tmp_path / f"{name}.safetensors")
    return made


def test_names_and_tags(shipped):
    assert split_tag("lm_resnet20.cifar10") == ("lm_resnet20", "cifar10") and split_tag("x") == ("x", None)
    assert list_pretrained() == sorted(shipped)
    assert pretrained_file("lm_resnet20").stem == "lm_resnet20.cifar10"
    for name, said in {
        "resnet56": r"no trained weights come with stepnet under this name; there are: lm_resnet20\.cifar10, ",
        "lm_resnet20.cifar100": "unknown weights of lm_resnet20 'cifar100': did you mean 'cifar10'",
    }.items():
        with pytest.raises(UserError, match=said):
            create_model(name, pretrained=True)


def test_create_model_fills_the_network(shipped):
    network = create_model("lm_resnet20.digits", pretrained=True).eval()  # one channel, as the weights have
    assert torch.equal(network(X), shipped["lm_resnet20.digits"](X))
    assert create_model("lm_resnet20", pretrained=True).in_channels == 3
    assert torch.equal(stepnet.load("lm_resnet20.digits")(X), network(X))
    five = create_model("lm_resnet20.digits", pretrained=True, num_classes=5)
    assert five.head.weight.shape[0] == 5 and torch.equal(five.stem.weight, network.stem.weight)
    with pytest.raises(UserError, match=r"the weights of lm_resnet20 are of another network .* 'stem\.weight'"):
        create_model("lm_resnet20", pretrained=True, in_channels=1)


def test_a_plain_networks_weights_under_another_scheme(shipped):
    network = create_model("preact_resnet20.digits", pretrained=True, scheme="lm").eval()
    assert torch.equal(network(X), shipped["preact_resnet20.digits"](X))
    assert set(stepnet.coefficients(network).values()) == {0.0}


def test_a_tag_alone_builds_a_new_network():
    assert create_model("lm_resnet20.cifar10").num_classes == 10


@pytest.mark.parametrize("name", list_pretrained())
def test_what_is_shipped_loads_and_has_its_card(name):
    description = stepnet.load(name).description
    assert description.training.test_error is not None and description.classes and description.license
    assert f"{description.training.test_error:.2f}" in pretrained_file(name).with_suffix(".md").read_text()


@pytest.mark.parametrize("name", [name for name in list_pretrained() if name.endswith(".digits")])
def test_what_is_shipped_for_digits_has_the_error_that_it_tells(name, capsys):
    assert main(["evaluate", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == stepnet.load(name).description.training.test_error
