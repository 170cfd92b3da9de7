"""Compiling block by block."""

import copy

import pytest
import torch

from stepnet import create_model
from stepnet.nets.compiled import compile_blocks
from stepnet.nets.shakeshake import cifar_shakeshake


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
