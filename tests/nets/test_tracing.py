"""Graphs of networks: torch.fx, torchvision's feature extractors, torch.jit.trace."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

from stepnet.errors import UserError
from stepnet.extras import import_extra
from stepnet.nets import create_model

IMAGES = torch.randn(2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lm_resnet20", {"k": -0.3}),
        ("lm_resnet20", {"k_bound": "stable"}),
        ("lm_resnet20", {"memory": "recompute"}),
        ("resnet20", {"scheme": "heun"}),
        ("resnet20", {"scheme": "ab2", "pre_activation": False}),
        ("revnet38", {}),
    ],
)
def test_a_symbolic_graph_computes_the_same(name: str, options: dict[str, Any], training: bool) -> None:
    model = create_model(name, **options).double().train(training)
    graph = torch.fx.symbolic_trace(model)
    logits, own = graph(IMAGES), model(IMAGES)
    assert torch.equal(logits, own)
    parameters = list(model.parameters())
    expected = torch.autograd.grad(own.square().sum(), parameters)
    found = torch.autograd.grad(logits.square().sum(), parameters)
    for gradient, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, reference)


def test_the_coefficients_of_a_graph_are_variables() -> None:
    model = create_model("lm_resnet20", k=-0.3).double().eval()
    graph = torch.fx.symbolic_trace(model)
    before = graph(IMAGES)
    with torch.no_grad():
        model.stages[1].k.fill_(0.2)
    assert torch.equal(graph(IMAGES), model(IMAGES)) and not torch.equal(graph(IMAGES), before)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet20", {"stochastic_depth": 0.5}),
        ("shakeshake26_2x32d", {}),
        ("fractalnet20", {"widths": (4, 8), "drop_path": 0.15}),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_draws_are_no_constants_of_a_graph(name: str, options: dict[str, Any]) -> None:
    model = create_model(name, **options).double()
    for trace in (torch.fx.symbolic_trace, lambda model: torch.jit.trace(model, IMAGES)):
        with pytest.raises(UserError, match=r"draws: trace it in eval\(\), or without noise"):
            trace(model)
    model.eval()
    assert torch.equal(torch.fx.symbolic_trace(model)(IMAGES), model(IMAGES))


@pytest.mark.parametrize("scheme", ["lm", "heun"])
def test_torchvision_extracts_the_states_of_stages(scheme: str) -> None:
    pytest.importorskip("torchvision")
    create_feature_extractor = import_extra("torchvision.models.feature_extraction").create_feature_extractor
    model = create_model("resnet20", scheme=scheme).double().eval()
    features = create_feature_extractor(model, ["stages.0", "stages.2"])(IMAGES)
    states = model.trajectory(IMAGES)
    assert torch.equal(features["stages.0"], states[0][-1])
    assert torch.equal(features["stages.2"], states[2][-1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_jit_traces_without_a_warning_for_any_batch() -> None:
    model = create_model("lm_resnet20").double().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(model, IMAGES)
    other = torch.randn(3, 3, 40, 24, dtype=torch.float64)
    torch.testing.assert_close(traced(other), model(other))


@pytest.mark.filterwarnings("ignore")  # torch moves it to another package
def test_fx_quantises_the_convolutions() -> None:
    torch.manual_seed(0)
    model, images = create_model("lm_resnet20").eval(), IMAGES.float()
    prepared = prepare_fx(model, get_default_qconfig_mapping(), (images,))
    prepared(images)
    quantised = convert_fx(prepared)
    assert "quantized" in type(quantised.get_submodule("stages.1.blocks.0.convs.0")).__module__
    own = model(images)
    assert (quantised(images) - own).norm() < 0.2 * own.norm()
