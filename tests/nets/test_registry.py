"""Networks by name."""

from __future__ import annotations

import pytest

from stepnet.errors import UserError
from stepnet.nets import create_model, list_models, model_entry, register_model
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
    with pytest.raises(UserError, match=r"'resnet20'.*'colour'"):
        create_model("resnet20", colour=3)


def test_unknown_scheme() -> None:
    with pytest.raises(UserError, match=r"unknown scheme 'hune'.*'heun'"):
        create_model("resnet20", scheme="hune")


def test_entries_tell_the_scheme_that_the_network_has() -> None:
    for name in ("resnet20", "lm_resnet20", "poly3_resnet20", "shakeshake26_2x32d", "fractalnet40"):
        assert create_model(name).scheme.name == model_entry(name).scheme


def test_imagenet_models_default_to_a_thousand_classes() -> None:
    assert model_entry("resnet50").num_classes == 1000 and model_entry("resnet50").image_size == 224
