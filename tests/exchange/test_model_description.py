"""What a file says of its model."""

import pytest
import torch
from torch import nn

import stepnet
from stepnet import UserError
from stepnet.exchange.model_description import Preprocessing, TrainingRecord, decode, describe_network, encode
from stepnet.schemes.runge_kutta import RK4

GREY = Preprocessing(channels=1, image_size=8, resize=8, mean=(0.1 + 0.2,), std=(1 / 3,))


def test_every_bit_comes_back():
    network = stepnet.create_model("lm_resnet20", in_channels=1, k_bound=(-0.5, 0.5))
    training = TrainingRecord(data="digits", epochs=1, recipe={"lr": 0.1}, test_error=1 / 3)
    description = describe_network(network, ["ä", "b"], GREY, training)
    assert decode(encode(description), "here") == description
    assert description.options == {"in_channels": 1, "k_bound": [-0.5, 0.5], "num_classes": 10}


def test_a_network_that_nobody_named_is_described_by_its_class():
    description = describe_network(nn.Linear(2, 3))
    assert description.built_elsewhere and description.model == "torch.nn.modules.linear.Linear"


@pytest.mark.parametrize(
    ("field", "value"), [("std", "[0]"), ("mean", "[]"), ("channels", "0"), ("resize", "7"), ("image_size", "1048576")]
)
def test_a_preprocessing_that_makes_no_sense_is_refused(field, value):
    fields = {"channels": "1", "image_size": "8", "resize": "8", "mean": "[0.5]", "std": "[0.5]"} | {field: value}
    inner = ", ".join(f'"{name}": {text}' for name, text in fields.items())
    with pytest.raises(UserError, match="here is damaged: its description cannot be read"):
        decode(f'{{"model": "x", "preprocessing": {{{inner}}}}}', "here")


def test_options_that_no_file_can_hold_are_refused():
    network = stepnet.create_model("lm_resnet20")
    object.__setattr__(network.step_origin, "options", {"hook": torch.nn.Linear})
    with pytest.raises(UserError, match="lm_resnet20: its options cannot be written into a file"):
        describe_network(network)


def test_a_scheme_object_is_written_by_its_name_if_that_builds_it(tmp_path):
    for scheme in (stepnet.get_scheme("heun"), stepnet.get_scheme("ab2"), stepnet.get_scheme("leapfrog"), RK4()):
        network = stepnet.create_model("preact_resnet20", scheme=scheme)
        stepnet.save(network, tmp_path / "a")
        assert stepnet.load(tmp_path / "a").description.scheme == scheme.name
    network = stepnet.create_model("preact_resnet20", scheme=stepnet.get_scheme("lm", k=-0.5))
    stepnet.save(network, tmp_path / "b")  # k is trained, and stands in the weights
    assert stepnet.load(tmp_path / "b").description.k == stepnet.coefficients(network)
    heun = stepnet.get_scheme("heun")
    vars(heun)["weight"] = 3
    with pytest.raises(UserError, match="does not build: register it"):
        stepnet.save(stepnet.create_model("preact_resnet20", scheme=heun), tmp_path / "c")
