"""Blocks evaluated again: to the bit what storing gives, in every family; statistics move once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from stepnet import create_model, get_scheme
from stepnet.nets.replay import recomputed
from stepnet.nets.stage import Stage
from stepnet.nets.trajectories import KineticCost
from stepnet.nets.transitions import Coupling
from stepnet.timing.steps import peak_bytes


def gradients(model: nn.Module, images: Tensor) -> list[Tensor | None]:
    torch.manual_seed(5)
    model.zero_grad()
    model(images).square().sum().backward()
    return [p.grad for p in model.parameters()]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lm_resnet20", {}),
        ("resnet20", {"scheme": "rk4"}),
        ("resnet20", {"scheme": "ab2"}),
        ("preact_resnet20", {"scheme": "lm", "stochastic_depth": 0.5}),
        ("resnet20", {"stochastic_depth": {"survival": 0.5, "mode": "drop_path"}}),
        ("shakeshake26_2x32d", {}),
        ("fractalnet20", {"widths": (4, 8), "drop_path": 0.3}),
        ("lm_resnext29_8x64d", {}),
    ],
)
def test_gradients_and_statistics_are_those_of_storing(name: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, images = create_model(name, **options), torch.randn(2, 3, 8, 8)
    twin = copy.deepcopy(model)
    model.set_memory("recompute")
    for ours, autograd in zip(gradients(model, images), gradients(twin, images), strict=True):
        assert torch.equal(ours, autograd)
    for ours, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lm_resnext29_8x64d", {}),  # whose transitions project the past
        ("preact_resnet20", {"scheme": "lm", "shortcut": "projection", "stochastic_depth": 0.5}),
        ("shakeshake26_2x32d", {}),
        ("lm_revnet38", {}),
    ],
)
def test_a_segment_may_begin_with_a_transition(name: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, images = create_model(name, **options), torch.randn(2, 3, 8, 8)
    twin = copy.deepcopy(model)
    twin.set_memory("stored")
    model.set_memory("recompute")
    for stage in model.stages:
        stage.segment = 2
    for ours, autograd in zip(gradients(model, images), gradients(twin, images), strict=True):
        assert torch.equal(ours, autograd)


def test_memory_falls_to_the_states() -> None:
    model, images = create_model("resnet56"), torch.randn(4, 3, 32, 32)
    gradients(model, images)
    peaks = []
    for memory in ("stored", "recompute"):
        model.set_memory(memory)
        peaks.append(peak_bytes(lambda: model(images).sum().backward()))
    assert peaks[1] < peaks[0] / 2


class Noisy(nn.Module):
    """A block that draws numbers, moves statistics, and rounds where autocast is on."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        return nn.functional.dropout(self.conv(torch.relu(self.norm(u))), 0.3, self.training)


def deep_stage(scheme: str, depth: int = 41, **options: Any) -> Stage:
    torch.manual_seed(0)
    blocks = [Coupling(Noisy(), Noisy()) if "coupled" in scheme else Noisy() for _ in range(depth)]
    return Stage(get_scheme(scheme), blocks, dt=0.1, memory="recompute", **options)


@pytest.mark.parametrize(
    ("scheme", "options"),
    [("euler", {"after": torch.relu}), ("lm", {}), ("lm", {"k_bound": "stable"}), ("coupled", {}), ("lm+coupled", {})],
)
def test_a_segment_of_steps_is_repeated_to_the_bit(scheme: str, options: dict[str, Any]) -> None:
    stage = deep_stage(scheme, **options)
    assert stage.segment > 1
    twin = copy.deepcopy(stage)
    twin.set_memory("stored")
    state = [torch.randn(2, 4, 5, 5, requires_grad=True) for _ in range(1 + ("coupled" in scheme))]
    gates = None if len(state) > 1 else [(1, 0, 0.5, torch.rand(2, 1, 1, 1))[n % 4] for n in range(stage.depth)]
    found = []
    for net in (stage, twin):
        torch.manual_seed(1)
        visited: list[Any] = []
        with torch.autocast("cpu", torch.bfloat16):
            net(tuple(state) if len(state) > 1 else state[0], gates=gates, visit=visited.append)
        read = [part for u in (visited[7], visited[-1]) for part in (u if isinstance(u, tuple) else (u,))]
        loss = sum(part.square().sum() for part in read)
        found.append(
            [*read, *torch.autograd.grad(loss, [*state, *net.parameters()], allow_unused=True), *net.buffers()]
        )
    for ours, theirs in zip(*found, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


def test_memory_of_a_deep_stage_grows_as_the_root_of_its_depth() -> None:
    def peak(depth: int) -> int:
        stage, u = deep_stage("euler", depth), torch.randn(2, 4, 32, 32, requires_grad=True)
        stage(u).sum().backward()  # gradients are allocated
        return peak_bytes(lambda: stage(u).sum().backward())

    shallow, deep = peak(25), peak(100)
    assert deep < 2.3 * shallow
    assert deep < 45 * 4 * 2 * 4 * 32 * 32  # states, where there are 100


@pytest.mark.parametrize("scheme", ["lm", "ab2"])
def test_a_running_cost_and_an_older_f_are_recomputed_step_by_step(scheme: str) -> None:
    stage, u = deep_stage(scheme), torch.randn(2, 4, 5, 5, requires_grad=True)
    found = []
    for memory in ("recompute", "stored"):
        stage.set_memory(memory)
        torch.manual_seed(1)
        cost = KineticCost()
        loss = stage(u, cost=cost).square().sum() + cost.total
        found.append([cost.total, *torch.autograd.grad(loss, [u, *stage.parameters()])])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))


def test_in_autocast_and_with_arguments_of_all_kinds() -> None:
    layer, x, scale = nn.Linear(3, 3), torch.randn(2, 3), torch.randn(3, requires_grad=True)

    def f(u: Tensor, more: dict[str, Any], count: int) -> tuple[Tensor, None]:
        return torch.tanh(layer(u) * more["scale"] * count), None

    found = []
    for call in (lambda *args: f(*args), lambda *args: recomputed(f, layer, *args)):
        with torch.autocast("cpu", torch.bfloat16):
            y, nothing = call(x, {"scale": scale}, 2)
        assert nothing is None
        found.append(torch.autograd.grad(y.float().sum(), [*layer.parameters(), scale]))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_parameters_and_buffers_are_those_of_the_forward_pass() -> None:
    """`functional_call` takes back what it lent when the forward pass ends; the repetition comes later."""
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Tanh()).double()
    layer[2].eval()
    u = torch.randn(4, 3, dtype=torch.float64)
    lent = {name: value.detach() + 0.5 for name, value in layer.state_dict().items()}
    gradients = []
    for keeping in (lambda f, *args: f(*args), lambda f, *args: recomputed(f, layer, *args)):
        weights = {name: value.clone() for name, value in lent.items()}
        wanted = [weights[name].requires_grad_() for name, _ in layer.named_parameters()]
        output = functional_call(_Calling(layer, keeping), {f"layer.{name}": w for name, w in weights.items()}, (u,))
        gradients.append(torch.autograd.grad(output.square().sum(), wanted))
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert layer[2].num_batches_tracked == 0


class _Calling(nn.Module):
    def __init__(self, layer: nn.Module, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.layer, self.call = layer, call

    def forward(self, u: Tensor) -> Tensor:
        return self.call(lambda v: self.layer(v), u)
