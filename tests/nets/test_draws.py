"""One protocol for noise: what a network draws is a function of (seed, step, places), and its forward pass takes it."""

import copy

import pytest
import torch
from torch import nn

from stepnet import create_model
from stepnet.nets.draws import Noisy, compile_blocks, drawn_options
from stepnet.nets.fractalnet import cifar_fractalnet
from stepnet.nets.shakeshake import cifar_shakeshake

NOISY = {
    "stochastic depth": lambda: create_model("lm_resnet20", stochastic_depth=0.5),
    "drop_path": lambda: create_model("resnet20", stochastic_depth={"survival": 0.5, "mode": "drop_path"}),
    "shake-shake": lambda: cifar_shakeshake(8, width=2),
    "shake-shake with stochastic depth": lambda: cifar_shakeshake(8, width=2, stochastic_depth=0.5),
    "FractalNet": lambda: cifar_fractalnet(20, widths=(4, 4, 8), drop_path=0.3, global_drop=0.3),
}


@pytest.fixture(params=NOISY)
def network(request):
    torch.manual_seed(0)
    return NOISY[request.param]()


def outputs(network, x, noise):
    """In evaluation of the norms, so that a part of a batch is what it is in the whole one."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    return network(x, noise=noise)


def test_a_draw_is_a_function_of_its_arguments(network):
    assert isinstance(network, Noisy)
    x, places = torch.randn(6, 3, 16, 16), range(6)
    first, again = (outputs(network, x, network.draw(3, 1, places)) for _ in range(2))
    assert torch.equal(first, again)
    others = [outputs(network, x, network.draw(seed, step, places)) for seed, step in ((4, 1), (3, 2), (3, 3), (5, 5))]
    assert not all(torch.equal(first, other) for other in others)


def test_slices_of_a_batch_take_slices_of_its_noise(network):
    network.double()
    x = torch.randn(6, 3, 16, 16, dtype=torch.float64)
    whole = outputs(network, x, network.draw(0, 0, range(6)))
    parts = [outputs(network, x[places], network.draw(0, 0, range(6)[places])) for places in (slice(4), slice(4, 6))]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-10, atol=1e-10)


def test_without_noise_the_network_takes_the_draws_of_its_seed_in_turn(network):
    x = torch.randn(2, 3, 16, 16)
    network.seed = 7
    own = [outputs(network, x, None) for _ in range(3)]
    assert all(torch.equal(mine, outputs(network, x, network.draw(7, n, range(2)))) for n, mine in enumerate(own))


def test_a_network_without_noise_is_called_without():
    for network in (create_model("resnet20"), cifar_fractalnet(20, widths=(4,)), nn.Linear(2, 2)):
        assert drawn_options(network, 0, 0, range(2)) == {}


@pytest.fixture
def graphs(monkeypatch):
    """How often torch.compile was given a new graph; the graphs run as they are."""
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    torch._dynamo.reset()
    original = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **options: original(self, backend=backend, **options))
    yield compiled
    torch._dynamo.reset()


def test_patterns_of_gates_share_their_graphs(graphs):
    model = create_model("lm_resnet20", stochastic_depth=0.5)
    keys = list(model.state_dict())
    compile_blocks(model)
    assert list(model.state_dict()) == keys
    x = torch.randn(2, 3, 8, 8)
    model(x, noise=[1.0] * 9)
    seen = len(graphs)
    assert seen > 0
    for step in range(6):
        model(x, noise=model.draw(0, step, range(2))).sum().backward()
    assert len(graphs) == seen


def test_all_shapes_stay_compiled_in_training_and_in_evaluation(graphs):
    """Five shapes of blocks twice is more than torch's own limit of 8 graphs for one function."""
    torch.manual_seed(0)
    model = create_model("lm_resnet20")
    x = torch.randn(2, 3, 8, 8)
    plain = copy.deepcopy(model)
    compile_blocks(model)
    torch.testing.assert_close(model(x), plain(x))
    trained = len(graphs)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(x), plain.eval()(x))
    assert len(graphs) == 2 * trained > 8


def test_shake_shake_compiles_whole_and_new_coefficients_need_no_new_graph(graphs):
    model = cifar_shakeshake(8, width=2)
    plain = copy.deepcopy(model)
    model.compile(dynamic=False)
    x = torch.randn(4, 3, 8, 8)
    for seed in range(3):
        noise = model.draw(seed, 0, range(4))
        found, wanted = model(x, noise=noise), plain(x, noise=noise)
        found.sum().backward()
        wanted.sum().backward()
        torch.testing.assert_close(found, wanted)
    for own, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad)
    assert len(graphs) == 1
