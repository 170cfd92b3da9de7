"""Networks by name."""

from __future__ import annotations

from typing import Any

import pytest

from stepnet.errors import UserError
from stepnet.nets import Network, coefficients, create_model, list_models, model_entry, register_model
from stepnet.nets.origin import origin_of
from stepnet.nets.resnet import cifar_resnet
from stepnet.registry import option_names
from stepnet.report.catalogue import kept


def test_pattern() -> None:
    assert "lm_resnet20" in list_models("lm_*")
    assert all(name.startswith("lm_") for name in list_models("lm_*"))
    assert list_models("no_such_*") == []


def test_unknown_name_suggests_the_nearest() -> None:
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
