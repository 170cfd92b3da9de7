"""What every registered network must do, and the smallest of each family must survive."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import safetensors.torch
import torch

from stepnet.errors import UserError
from stepnet.nets import Backbone, Network, ResidualNetwork, create_model, model_entry
from stepnet.nets.blocks import basic
from stepnet.nets.densenet import DenseNet
from stepnet.nets.fractalnet import cifar_fractalnet
from stepnet.nets.polynet import VeryDeepPolyNet, cifar_polynet
from stepnet.nets.resnet import cifar_bottleneck_resnet, cifar_resnet
from stepnet.nets.resnext import resnext
from stepnet.nets.revnet import RevNet
from stepnet.nets.shakeshake import cifar_shakeshake
from stepnet.report.catalogue import kept

MODELS = list(kept())  # not those that tests register
FAMILIES = list(dict.fromkeys(model_entry(name).family for name in MODELS))
TWO_STAGES = Backbone(basic, (4, 8), (2, 2), stem_width=8, pre_activation=True)
SMALL: dict[str, Callable[[], Network]] = {
    "resnet": lambda: cifar_resnet(8),
    "preact_resnet": lambda: cifar_bottleneck_resnet(11),
    "lm_resnet": lambda: ResidualNetwork(TWO_STAGES, "lm"),
    "resnext": lambda: resnext((1, 1, 1), cardinality=2, group_width=4),
    "lm_resnext": lambda: resnext((1, 1, 1), cardinality=2, group_width=4, pre_activation=True, scheme="lm"),
    "polynet": lambda: cifar_polynet(14, "poly2"),
    "mpolynet": lambda: cifar_polynet(14, "mpoly2"),
    "two_way": lambda: cifar_polynet(14, "two_way"),
    "very_deep_polynet": lambda: VeryDeepPolyNet(num_classes=10, a=1, b=1, c=1),
    "fractalnet": lambda: cifar_fractalnet(10, (4, 8)),
    "densenet": lambda: DenseNet(10, growth=4, bottleneck=True),
    "shakeshake": lambda: cifar_shakeshake(8, width=4),
    "revnet": lambda: RevNet(TWO_STAGES),
    "lm_polynet": lambda: cifar_polynet(14, "poly2", scheme="lm"),
    "lm_revnet": lambda: RevNet(TWO_STAGES, "lm"),
}


def images(model: Network, batch: int = 2) -> torch.Tensor:
    size = max(8, model.reduction)
    return torch.randn(batch, model.in_channels, size, size)


def small(family: str) -> Network:
    """The smallest member, with running statistics that are not those of a new network."""
    torch.manual_seed(0)
    model = SMALL[family]()
    with torch.no_grad():
        for _ in range(3):
            model(images(model, 8))
    return model.eval()


def test_the_small_ones_cover_every_family() -> None:
    assert set(FAMILIES) <= SMALL.keys()


@pytest.mark.parametrize("name", MODELS)
def test_model(name: str) -> None:
    """Forward, backward, no parameter unused."""
    model = create_model(name)
    logits = model(images(model))
    logits.square().sum().backward()
    if hasattr(model, "scheme"):  # DenseNet has none, Very Deep PolyNet two
        assert model.scheme.name == model_entry(name).scheme
    assert logits.shape == (2, model_entry(name).num_classes) and logits.isfinite().all()
    unused = [parameter for parameter, p in model.named_parameters() if p.grad is None]
    assert not unused


@pytest.mark.parametrize("family", SMALL)
def test_eval_is_deterministic_and_copies_agree(family: str) -> None:
    model = small(family)
    x = images(model)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    with torch.no_grad():
        expected = model(x)
        assert expected.isfinite().all()
        assert torch.equal(model(x), expected)
        assert torch.equal(copy.deepcopy(model)(x), expected)
        assert torch.equal(pickle.loads(pickle.dumps(model))(x), expected)
        for weights in (
            torch.load(buffer, weights_only=True),
            safetensors.torch.load(safetensors.torch.save(model.state_dict())),
        ):
            with torch.device("meta"):
                fresh = SMALL[family]()
            fresh.load_state_dict(weights, assign=True)
            assert torch.equal(fresh.eval()(x), expected)


@pytest.mark.parametrize("family", SMALL)
def test_synchronised_norms_compute_the_same(family: str) -> None:
    """In evaluation torch's SyncBatchNorm needs no processes. It is no BatchNorm2d: nothing may ask for that class."""
    model = small(family)
    converted = torch.nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(model)).eval()
    x = images(model)
    with torch.no_grad():
        if family in ("polynet", "lm_polynet"):  # evaluates a block twice in a step
            with pytest.raises(UserError, match="leave out sync_bn"):
                converted(x)
        else:
            assert torch.equal(converted(x), model(x))


@pytest.mark.parametrize("family", SMALL)
def test_other_channels_classes_and_features(family: str) -> None:
    model = small(family)
    x = images(model)
    with torch.no_grad():
        features = model.forward_features(x)
        assert features.shape[:2] == (2, model.num_features)
        assert (features >= 0).all()  # every family ends in a ReLU, or in a mean of ReLUs
        torch.testing.assert_close(model.forward_head(features), model(x))
        model.reset_classifier(7)
        assert model(x).shape == (2, 7)
        model.reset_classifier(0)
        torch.testing.assert_close(model(x), features.mean((2, 3)))
    names = {name for name, _ in model.named_parameters()}
    assert model.no_weight_decay() < names


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_export_agrees_with_eager(family: str) -> None:
    """`torch.compile` without a graph break, `torch.export`, ONNX.

    `aot_eager` traces the whole graph as inductor does and runs it with torch's own kernels. Inductor's own code is
    slow to compile: CI has time for one network of each kind, a pair, several evaluations and a past.
    """
    model = small(family)
    x = images(model)
    with torch.no_grad():
        expected = model(x)
        scale = expected.abs().max().item()

        def agrees(actual: torch.Tensor) -> None:
            torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * max(1.0, scale))

        backend = "inductor" if family in {"lm_resnet", "fractalnet", "revnet"} else "aot_eager"
        agrees(torch.compile(model, fullgraph=True, backend=backend)(x))
        exported = torch.export.export(model, (x,), strict=family != "revnet")
        agrees(exported.module()(x))
        agrees(run_onnx(exported, x))


def run_onnx(exported: torch.export.ExportedProgram, x: torch.Tensor) -> torch.Tensor:
    import onnxruntime

    program = torch.onnx.export(exported, (x,), dynamo=True, verbose=False)
    assert program is not None
    buffer = io.BytesIO()
    program.save(buffer)
    session = onnxruntime.InferenceSession(buffer.getvalue())
    (output,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return torch.from_numpy(output)
