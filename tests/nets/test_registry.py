"""Networks by name."""

from __future__ import annotations

import pytest

from stepnet.errors import UserError
from stepnet.nets import Network, create_model, list_models, model_entry, register_model, registry
from stepnet.nets.registry import Entry
from stepnet.nets.resnet import cifar_resnet


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
    with pytest.raises(UserError, match=r"model 'resnet20' takes no option 'colour'"):
        create_model("resnet20", colour=3)
    with pytest.raises(UserError, match=r"'revnet38' takes no option 'stochastic_depth': the family 'revnet' has none"):
        create_model("revnet38", stochastic_depth=0.5)


def test_a_mistake_inside_a_builder_is_no_mistake_of_the_caller() -> None:
    def build(num_classes: int) -> Network:
        return cifar_resnet(20, wrong=num_classes)

    entry = Entry("broken", "resnet", "euler", 32, 10, build)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(TypeError, match="'wrong'"):
        patch.setitem(registry._entries, "broken", entry)
        create_model("broken")


def test_unknown_scheme() -> None:
    with pytest.raises(UserError, match=r"unknown scheme 'hune'.*'heun'"):
        create_model("resnet20", scheme="hune")


def test_imagenet_models_default_to_a_thousand_classes() -> None:
    assert model_entry("resnet50").num_classes == 1000 and model_entry("resnet50").image_size == 224
