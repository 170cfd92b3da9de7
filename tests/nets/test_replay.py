"""Blocks evaluated again: to the bit what storing gives, in every family; statistics move once."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stepnet import create_model
from stepnet.nets.replay import buffers_kept, recomputed
from stepnet.timing.memory import peak_bytes


def gradients(model: nn.Module, images: Tensor) -> list[Tensor | None]:
    torch.manual_seed(5)
    model.zero_grad()
    model(images).square().sum().backward()
    return [p.grad for p in model.parameters()]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lm_resnet110", {}),
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


def test_memory_falls_to_the_states() -> None:
    model, images = create_model("resnet56"), torch.randn(4, 3, 32, 32)
    gradients(model, images)
    peaks = []
    for memory in ("stored", "recompute"):
        model.set_memory(memory)
        peaks.append(peak_bytes(lambda: model(images).sum().backward()))
    assert peaks[1] < peaks[0] / 2


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


def test_buffers_are_put_back() -> None:
    norm = nn.BatchNorm1d(3)
    with buffers_kept(norm):
        norm(torch.randn(4, 3))
        assert norm.num_batches_tracked == 1
    assert norm.num_batches_tracked == 0
