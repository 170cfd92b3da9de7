import numpy as np
import pytest
import torch

from exchange.greys import GREY
from stepnet import UserError, create_model
from stepnet.exchange.model_description import describe_network
from stepnet.exchange.model_files import attach
from stepnet.exchange.prediction import predict


def test_the_likeliest_classes_come_first():
    torch.manual_seed(0)
    network = create_model("lm_resnet20", in_channels=1, num_classes=3).eval()
    attach(network, describe_network(network, ["ant", "bee", "cat"], GREY))
    picture = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    with torch.no_grad():
        wanted = network(network.preprocess(picture)).softmax(1)[0]
    (found,) = predict(network, [picture])  # three classes, though five are asked for
    assert [each.name for each in found] == [("ant", "bee", "cat")[i] for i in wanted.argsort(descending=True)]
    assert [each.probability for each in found] == pytest.approx(sorted(wanted.tolist(), reverse=True))
    (best,) = predict(network, [picture], top=1)
    assert best == found[:1]


def test_a_network_that_does_not_say_how():
    with pytest.raises(UserError, match="does not say how a picture becomes its input"):
        next(predict(create_model("lm_resnet20"), [np.zeros((8, 8), np.uint8)]))
