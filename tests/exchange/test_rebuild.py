"""From a description back to the network."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import stepnet
from stepnet import UserError
from stepnet.conversion.transform import convert_again
from stepnet.exchange.model_description import describe_network
from stepnet.exchange.rebuild import fill, fitted_options, rebuild
from stepnet.nets import list_models

SMALL = [
    "resnet20",
    "lm_resnet20",
    "poly2_resnet20",
    "revnet38",
    "shakeshake26_2x32d",
    "densenet40_k12",
    "fractalnet20",
]


@pytest.mark.parametrize("name", [name for name in SMALL if name in list_models()])
def test_every_family_is_laid_out_without_memory(name):
    torch.manual_seed(0)
    network = stepnet.create_model(name).eval()
    description = describe_network(network)
    loaded = rebuild(description, network.state_dict(), "here")
    assert not any(t.is_meta for t in (*loaded.parameters(), *loaded.buffers()))
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(loaded(x), network(x))


def test_classes_and_channels_are_read_from_the_weights():
    weights = stepnet.create_model("resnet20", num_classes=7, in_channels=2).state_dict()
    assert fitted_options("resnet20", weights) == {"num_classes": 7, "in_channels": 2}


def test_a_converted_network_is_converted_again_the_same_way():
    pytest.importorskip("timm")
    from stepnet.conversion import load_foreign

    torch.manual_seed(0)
    plain = load_foreign("timm/resnet18", num_classes=3)
    network = stepnet.convert(plain, "lm", torch.zeros(1, 3, 32, 32), init=-0.3, dt=0.5, k_bound="stable").eval()
    description = describe_network(network)
    assert description.conversion.scheme == "lm" and len(description.conversion.stages) == 4
    assert description.conversion.k_bound == (-1.0, 1.0)
    loaded = rebuild(description, network.state_dict(), "here")
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(loaded(x), network(x))
    moved = replace(description.conversion, stages=description.conversion.stages[1:])
    with pytest.raises(UserError, match="here cannot be built from its description: its blocks became other steps"):
        rebuild(replace(description, conversion=moved), network.state_dict(), "here")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, u):
        return u + self.linear(u).tanh()


def test_a_network_of_ones_own_is_converted_and_filled():
    torch.manual_seed(0)
    build = lambda: nn.Sequential(*(Block() for _ in range(4)))  # noqa: E731
    x = torch.randn(2, 4)
    network = stepnet.convert(build(), "lm", x, init=-0.4)
    loaded = fill(build(), describe_network(network), network.state_dict(), "here", x)
    assert torch.equal(loaded(x), network.eval()(x))


def test_a_saved_conversion_is_restored_even_where_more_would_be_found_today():
    """As older versions left it: the change of shape no step, the other blocks taken whole."""
    block = pytest.importorskip("torchvision.models").resnet.BasicBlock
    build = lambda: nn.Sequential(block(4, 8, downsample=nn.Conv2d(4, 8, 1)), block(8, 8), block(8, 8)).eval()  # noqa: E731
    torch.manual_seed(0)
    network, x = build(), torch.randn(2, 4, 8, 8)
    convert_again(network, "lm", [["1", "2"]], [], x)
    with torch.no_grad():
        network[2].step_k.fill_(-0.5)
    description = describe_network(network)
    assert description.conversion.stages == (("1", "2"),) and description.conversion.split == ()
    loaded = fill(build(), description, network.state_dict(), "here", x)
    assert torch.equal(loaded(x), network(x))
    u = loaded[0](x)
    v = loaded[1](u)
    plain = loaded[2].step_original.forward(loaded[2], v)
    torch.testing.assert_close(loaded(x), plain - 0.5 * (u - v))  # after the ReLU, not before it
