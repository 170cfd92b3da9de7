"""Networks by name."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from torch import nn

import stepnet
from stepnet.cli import main
from stepnet.errors import UserError
from stepnet.nets import Network, coefficients, create_model, list_models, model_entry, model_registry, register_model
from stepnet.nets.model_registry import (
    FeatureList,
    list_pretrained,
    origin_of,
    pretrained_file,
    remember_origin,
    split_tag,
)
from stepnet.nets.resnet import cifar_resnet
from stepnet.registry import option_names
from stepnet.report.catalogue import kept


def test_pattern() -> None:
    assert "lm_resnet20" in list_models("lm_*")
    assert all(name.startswith("lm_") for name in list_models("lm_*"))
    assert list_models("no_such_*") == []


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown model 'gpt2x8:lm': give the scheme by .* in 'gpt2x8', scheme='lm'"):
        create_model("gpt2x8:lm")
    with pytest.raises(UserError, match=r"unknown model 'lm_resnet2O': did you mean .*'lm_resnet20'"):
        create_model("lm_resnet2O")


def test_a_name_is_registered_once() -> None:
    with pytest.raises(UserError, match="'resnet20' is registered already"):
        register_model("resnet20", family="resnet")(cifar_resnet)


def test_unknown_option_is_named() -> None:
    with pytest.raises(UserError, match=r"model 'resnet20' takes no option 'shceme': did you mean 'scheme'?"):
        create_model("resnet20", shceme="lm")
    with pytest.raises(UserError, match=r"'revnet38' takes no option 'stochastic_depth': it takes"):
        create_model("revnet38", stochastic_depth=0.5)


@pytest.mark.usefixtures("registries")
def test_a_mistake_inside_a_builder_is_no_mistake_of_the_caller() -> None:
    @register_model("broken", family="resnet")
    def build(num_classes: int) -> Network:
        return cifar_resnet(20, wrong=num_classes)

    with pytest.raises(TypeError, match="'wrong'"):
        create_model("broken")


@pytest.mark.parametrize("name", kept())  # not those that tests register
def test_every_model_tells_the_options_it_takes(name: str) -> None:
    assert {"num_classes", "in_channels"} <= set(option_names(model_entry(name).build))


def test_unknown_scheme() -> None:
    with pytest.raises(UserError, match=r"unknown scheme 'hune'.*'heun'"):
        create_model("resnet20", scheme="hune")


def test_imagenet_models_default_to_a_thousand_classes() -> None:
    assert model_entry("resnet50").num_classes == 1000 and model_entry("resnet50").image_size == 224


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet20", {"depth": 3}, "model 'resnet20' takes no option 'depth'"),
        ("shakeshake26_2x32d", {"width": 4}, "takes no option 'width'"),
        ("resnext29_8x64d", {"cardinality": 3}, "takes no option 'cardinality'"),
        ("fractalnet20", {"widths": 3}, "widths = 3"),
        ("fractalnet20", {"columns": 3}, "takes no option 'columns'"),
        ("fractalnet20", {"drop_path": "a"}, "drop_path = 'a'"),
        ("fractalnet20", {"scheme": "neumann2"}, "scheme 'neumann2' on FractalNet: each stage is one fractal step"),
        ("resnet20", {"scheme": ["lm"]}, r"scheme = \['lm'\]: expected a str or a Scheme"),
        (3, {}, "name = 3: expected a str"),
    ],
)
def test_mistakes_in_options_are_told_in_one_line(name: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        create_model(name, **options)


def test_in_chans_is_in_channels() -> None:
    model = create_model("resnet20", in_chans=1)
    assert model.in_channels == 1
    origin = origin_of(model)
    assert origin is not None and origin.options == {"in_channels": 1}
    with pytest.raises(UserError, match="in_chans = 1 and in_channels = 3: give one"):
        create_model("resnet20", in_chans=1, in_channels=3)
    with pytest.raises(UserError, match="in_chans = '1': expected a whole number"):
        create_model("resnet20", in_chans="1")


def test_an_integer_k_will_do() -> None:
    with pytest.warns(UserWarning, match="k = 2 is outside"):
        model = create_model("lm_resnet20", k=2)
    assert set(coefficients(model).values()) == {2.0}


def test_an_origin_follows_the_network():
    network = copy.deepcopy(create_model("lm_resnet20.digits", in_channels=1, k=-0.5))
    origin = origin_of(network)
    assert (origin.name, origin.options) == ("lm_resnet20", {"in_channels": 1, "k": -0.5})
    network.reset_classifier(4)
    assert origin.options_now(network) == {"in_channels": 1, "k": -0.5, "num_classes": 4}


def test_a_network_of_someone_else_has_none_until_it_is_told():
    network = nn.Linear(1, 1)
    assert origin_of(network) is None
    assert origin_of(remember_origin(network, "x", {"a": 1})).options == {"a": 1}


@pytest.mark.parametrize("name", ["lm_resnet20", "revnet38"])
def test_features_only_gives_the_last_states(name: str) -> None:
    torch.manual_seed(0)
    backbone = create_model(name, features_only=True, in_chans=1).double().eval()
    x = torch.randn(2, 1, 16, 16, dtype=torch.float64)
    network = create_model(name, in_channels=1, num_classes=0).double().eval()
    network.load_state_dict(backbone.network.state_dict())
    states = [stage[-1] for stage in network.trajectory(x)]
    joined = [torch.cat(state, dim=1) if isinstance(state, tuple) else state for state in states]
    found = backbone(x)
    assert len(found) == len(backbone.feature_info) == 3 and all(map(torch.equal, found, joined))
    assert [state.shape[1] for state in found] == [info["num_chs"] for info in backbone.feature_info]


def test_features_of_a_language_model_whose_classifier_is_its_embedding() -> None:
    backbone, tokens = create_model("gpt2x16", features_only=True).eval(), torch.arange(6)[None]
    (states,), (found,) = backbone.network.trajectory(tokens), backbone(tokens)
    assert torch.equal(found, states[-1])


@pytest.mark.parametrize("name", ["lm_resnet20", "resnet20", "revnet38"])
def test_every_trainable_parameter_gets_a_gradient(name: str) -> None:
    """DistributedDataParallel waits for the gradients of all."""
    backbone = create_model(name, features_only=True)
    torch.stack([state.square().mean() for state in backbone(torch.randn(2, 3, 16, 16))]).sum().backward()
    trained = [parameter for parameter in backbone.parameters() if parameter.requires_grad]
    assert trained and all(parameter.grad is not None for parameter in trained)


def test_a_network_without_stages_is_refused() -> None:
    with pytest.raises(UserError, match="DenseNet has no stages"):
        create_model("densenet100_k24", features_only=True)
    assert not isinstance(create_model("resnet20", features_only=False), FeatureList)


X = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A folder of weights in the place of the package's own."""
    monkeypatch.setattr(model_registry, "WEIGHTS", tmp_path)
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
        "resnet56": r"stepnet has no trained weights of this name; available: lm_resnet20\.cifar10, ",
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
