"""Transformers whose layers are steps of a splitting, against their formulas written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepnet
from stepnet.errors import UserError
from stepnet.nets.stage import Stage

SPLITTINGS = ["parallel", "lie_trotter", "strang", "strang+midpoint", "lm+lie_trotter"]
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
IMAGES = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
FAMILIES = {"gpt": ("gpt3x16", TOKENS, {"num_classes": 11}), "vit": ("vit2x16", IMAGES, {"in_channels": 1})}


def network(scheme: str, family: str = "gpt", **options: Any) -> Any:
    torch.manual_seed(0)
    name, _, own = FAMILIES[family]
    return stepnet.create_model(name, scheme=scheme, **own, **options).eval()


def step(scheme: str, u: Tensor, a: nn.Module, m: nn.Module, dt: float) -> Tensor:
    """One layer, as the papers write it."""
    if scheme == "parallel":
        return u + dt * (a(u) + m(u))
    if scheme == "lie_trotter":
        u = u + dt * a(u)
        return u + dt * m(u)
    if scheme == "strang":
        u = u + dt / 2 * m(u)
        u = u + dt * a(u)
        return u + dt / 2 * m(u)
    for part, length in ((m, dt / 2), (a, dt), (m, dt / 2)):
        u = u + length * part(u + length / 2 * part(u))
    return u


@pytest.mark.parametrize("dt", [1, 0.3])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scheme", SPLITTINGS[:4])
def test_a_layer_is_its_formula(scheme: str, family: str, dt: float) -> None:
    model, x = network(scheme, family, dt=dt).double(), FAMILIES[family][1]
    with torch.no_grad():
        (states,) = model.trajectory(x if family == "gpt" else x.double())
        u = states[0]
        for n, layer in enumerate(model.stages[0].blocks):
            u = step(scheme, u, layer.f, layer.g, dt)
            torch.testing.assert_close(states[n + 1], u, rtol=0, atol=1e-12)
        moved = (u - states[0]).abs().max()
    assert len(states) == model.layers + 1 and moved > 1e-3


@pytest.mark.parametrize("dt", [1, 0.3])
@pytest.mark.parametrize("family", FAMILIES)
def test_lie_trotter_has_the_bits_of_todays_transformer(family: str, dt: float) -> None:
    """The same parameters from the same seed, the same outputs, the same gradients."""
    found = []
    for scheme in ("euler", "lie_trotter"):
        model = network(scheme, family, dt=dt)
        output = model(FAMILIES[family][1])
        output.square().sum().backward()
        found.append([output, *(p for p in model.parameters()), *(p.grad for p in model.parameters())])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))


def test_splittings_have_the_same_parameters() -> None:
    first, *others = [network(scheme).state_dict() for scheme in SPLITTINGS[:4]]
    for other in others:
        assert other.keys() == first.keys() and all(torch.equal(other[name], first[name]) for name in first)


def test_lm_over_a_splitting_mixes_layers() -> None:
    """`u_{n+1} = L(u_n) + k_n (u_{n-1} - u_n)`, where L is a transformer's layer."""
    model = network("lm+lie_trotter", k=-0.25).double()
    assert len(stepnet.coefficients(model)) == 2  # the first layer owns none
    with torch.no_grad():
        (states,) = model.trajectory(TOKENS)
        for n, layer in enumerate(model.stages[0].blocks):
            wanted = step("lie_trotter", states[n], layer.f, layer.g, 1)
            wanted = wanted - 0.25 * (states[max(0, n - 1)] - states[n])
            torch.testing.assert_close(states[n + 1], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", SPLITTINGS)
def test_memory_modes_give_the_same_gradients(scheme: str) -> None:
    found = []
    for memory in ("stored", "recompute"):
        model = network(scheme, depths=(5,)).double().train()
        model.set_memory(memory)
        model(TOKENS).square().sum().backward()
        found.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)
    if scheme.startswith("lm"):
        return
    with pytest.raises(UserError, match=f"memory='reversible': scheme '{scheme}' has no inverse".replace("+", r"\+")):
        model.set_memory("reversible")


@pytest.mark.parametrize("scheme", SPLITTINGS)
def test_it_is_saved_read_and_drawn(scheme: str, tmp_path: Path) -> None:
    model = network(scheme)
    stepnet.save(model, tmp_path / "model.safetensors")
    again = stepnet.load(tmp_path / "model.safetensors")
    assert again.scheme.name == scheme and torch.equal(again(TOKENS), model(TOKENS))
    (stage,) = stepnet.read(model, TOKENS).stages
    assert stage.declared == scheme and stage.deviation is not None and stage.deviation < 1e-6
    stepnet.assert_scheme(model, scheme, TOKENS)
    texts = {text.get_text() for text in stepnet.plot_network(model).axes[0].texts}
    assert {"$f_{0}$", "$g_{0}$"} <= texts, texts


def test_depth_is_time() -> None:
    """A refined network takes each layer twice with half its length: the same flow, to first order."""
    model = network("parallel").double()
    fine = stepnet.refine(model, 2)
    assert fine.layers == 6 and fine.stages[0].dts == (0.5,) * 6
    assert torch.equal(fine.stages[0].blocks[1].g.expand.weight, model.stages[0].blocks[0].g.expand.weight)


@pytest.mark.parametrize("scheme", ["parallel", "lie_trotter", "strang"])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("resnet20", r"splits u' = f \+ g: it needs layers of two branches"),
        ("revnet38", r"splits u' = f \+ g: it needs layers of two branches"),
        ("poly2_resnet20", r"would make .* another network"),
    ],
)
def test_a_backbone_of_one_branch_refuses_in_one_line(name: str, why: str, scheme: str) -> None:
    with pytest.raises(UserError, match=rf"^scheme '{scheme}' {why}.*$"):
        stepnet.create_model(name, scheme=scheme)


def test_convert_refuses_in_one_line() -> None:
    with pytest.raises(UserError, match=r"^scheme 'parallel' splits u' = f \+ g: it needs layers of two branches.*$"):
        stepnet.convert(nn.Sequential(nn.Linear(3, 3)), "parallel", example=torch.zeros(1, 3))


def test_a_stage_of_single_blocks_refuses_in_one_line() -> None:
    with pytest.raises(UserError, match=r"^scheme 'parallel' advances f and g: expected a Coupling .*got a Linear$"):
        Stage(stepnet.get_scheme("parallel"), [nn.Linear(3, 3)])
