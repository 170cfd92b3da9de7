"""How a network was built is remembered with it."""

import copy

from torch import nn

from stepnet import create_model
from stepnet.nets.origin import origin_of, remember_origin


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
