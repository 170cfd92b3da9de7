"""Converted networks of several coefficients and streams: exact at the start, and then what the source says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.nets.test_general_linear import NAMES, REFERENCES, WIDTH, Slope, dynamic
from torch import Tensor, nn

import stepnet
from stepnet.conversion.step import ConvertedStep
from stepnet.errors import UserError

DEPTH = 4


class Block(Slope):
    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        return u + torch.tanh(self.linear(u))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(DEPTH)))


def moved(model: nn.Module) -> dict[str, dict[int, Tensor]]:
    """The coefficients by name and step, away from their start."""
    found: dict[str, dict[int, Tensor]] = {}
    for n, block in enumerate(module for module in model.modules() if isinstance(module, ConvertedStep)):
        for name, parameter in block.named_parameters():
            if name.startswith("step_mixing_"):
                with torch.no_grad():
                    parameter += 0.3 * torch.randn(parameter.shape, dtype=parameter.dtype)
        for name, value in block.named_coefficients():
            found.setdefault(name.partition(":")[2], {})[n] = value.detach()
    return found


@pytest.mark.parametrize("scheme", [*NAMES, "mhc3"])
@pytest.mark.parametrize("memory", ["stored", "recompute"])
def test_the_start_is_the_network_and_then_the_scheme(scheme: str, memory: Any) -> None:
    plain, x = network().double(), torch.randn(4, WIDTH, dtype=torch.float64)
    wanted = plain(x)
    model = stepnet.convert(network().double(), scheme, example=x, init="identity", memory=memory)
    assert torch.equal(model(x), wanted)
    assert stepnet.read(model, x).stages[0].deviation == pytest.approx(0, abs=1e-12)
    own = moved(model)
    fs = [lambda u, block=block: block(u) - u for block in plain]
    reference = REFERENCES[scheme.rstrip("0123456789") if scheme != "x0" else scheme](x, fs, own)
    torch.testing.assert_close(model(x), reference, rtol=0, atol=1e-12)
    model.train()(x).sum().backward()
    idle = {"0.step_mixing_U_free", "0.step_mixing_V_free"}  # mhc's first step mixes equal streams
    assert all(p.grad.abs().max() > 0 for name, p in model.named_parameters() if name not in idle)  # type: ignore[union-attr]
    assert len(model.trajectory(x)[0]) == DEPTH + 1
    stepnet.revert(model)
    assert torch.equal(model(x), wanted) and model.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize("memory", ["stored", "recompute"])
def test_coefficients_that_depend_on_the_state(memory: Any) -> None:
    """Their width is that of the example's state; then position by position what the paper says."""
    plain, x = network().double(), torch.randn(2, 3, WIDTH, dtype=torch.float64)
    model = stepnet.convert(plain, "dynamic_hyper3", example=x, init="identity", memory=memory).train()
    assert torch.equal(model(x), plain(x))
    moved(model)
    rows = []
    for row in x.flatten(0, 1):
        h = row.expand(3, -1)
        for block, step in zip(plain, model, strict=True):
            own = {name.partition("step_mixing_")[2]: p[0] for name, p in step.named_parameters() if "step_" in name}
            h = dynamic(h, lambda u, block=block: block(u) - u, own)
        rows.append(h.mean(0))
    torch.testing.assert_close(model(x), torch.stack(rows).view_as(x), rtol=0, atol=1e-12)
    model(x).square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in model.parameters())  # type: ignore[union-attr]


@pytest.mark.parametrize("scheme", [*NAMES, "mhc3", "dynamic_hyper"])
def test_a_stage_change_and_an_activation(scheme: str) -> None:
    """The streams begin with the projected input; exact at the start, every parameter learns."""
    resnet = pytest.importorskip("torchvision.models.resnet")
    torch.manual_seed(0)
    plain = resnet.ResNet(resnet.BasicBlock, [3, 3, 1, 1], num_classes=4).eval()
    x = torch.randn(2, 3, 32, 32)
    wanted, weights = plain(x), {name: value.clone() for name, value in plain.state_dict().items()}
    model = stepnet.convert(plain, scheme, example=x, init="identity")
    assert torch.equal(model(x), wanted)
    moved(model)
    model(x).square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert [len(states) for states in model.trajectory(x)] == [4, 4]
    model.load_state_dict(weights)  # of the plain network: our coefficients stay as they are
    assert stepnet.coefficients(model)


def test_wrong_input_is_one_line() -> None:
    x = torch.randn(2, WIDTH)
    with pytest.raises(UserError, match=r"init=0.1: the coefficients of 'mhc' have names; give them to get_scheme"):
        stepnet.convert(network(), "mhc", example=x, init=0.1)
    model = stepnet.convert(network(), "x0", example=x)
    with pytest.raises(UserError, match=r"step '1' of scheme 'x0' got a state that its run did not make"):
        model[1](x)
    with pytest.raises(UserError, match=r"memory='reversible': scheme 'hyper' has no inverse"):
        stepnet.convert(network(), "hyper", example=x, memory="reversible")
    with pytest.raises(UserError, match=r"memory='reversible': converted blocks hand on the streams of 'momentum'"):
        stepnet.convert(network(), "momentum", example=x, memory="reversible")
    assert stepnet.convert(network(), "momentum", example=x, memory="auto")[3].memory_in_use == "recompute"
