"""A block is residual when its output holds its input plus something; read from autograd's graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stepnet.conversion.autograd_graph import is_residual, place_of

WEIGHT = torch.randn(6, 6)


def f(u: Tensor) -> Tensor:
    return torch.tanh(u @ WEIGHT)


def in_place(u: Tensor) -> Tensor:
    v = f(u)
    v += u
    return v


def on_a_slice(u: Tensor) -> Tensor:
    v = torch.cat([f(u), f(u)], 1)[:, :6]
    v += u
    return v


RESIDUAL: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda u: u + f(u),
    "other order": lambda u: f(u) + u,
    "in place": in_place,
    "in place on a slice": on_a_slice,
    "scaled branch": lambda u: torch.addcmul(u, f(u), f(u)),
    "two sums": lambda u: (u + f(u)) + f(u + f(u)),
    "post-activation": lambda u: F.relu(u + f(u)),
    "post-norm, twice": lambda u: F.layer_norm(F.layer_norm(u + f(u), (6,)) + f(u), (6,)),
    "layout": lambda u: (u.transpose(0, 1).reshape(6, -1) + f(u).t()).t().contiguous(),
    "parts put together": lambda u: torch.cat([u[:, :2], u[:, 2:] + f(u)[:, 2:]], 1) + f(u),
}
NOT_RESIDUAL: dict[str, Callable[[Tensor], Tensor]] = {
    "no sum": f,
    "identity": lambda u: u.view_as(u),
    "scaled input": lambda u: 2 * u + f(u),
    "activated input": lambda u: F.relu(u) + f(u),
    "normalised input": lambda u: F.layer_norm(u, (6,)) + f(u),
    "gate": lambda u: u * f(u),
    "one part only": lambda u: torch.cat([u[:, :3] + f(u)[:, :3], f(u)[:, 3:]], 1),
    "detached": lambda u: u.detach() + f(u),
}


def judged(block: Callable[[Tensor], Tensor]) -> bool:
    u = torch.randn(4, 6, requires_grad=True).clone()
    place = place_of(u)
    return is_residual(block(u), place)


@pytest.mark.parametrize("name", RESIDUAL)
def test_residual(name: str) -> None:
    assert judged(RESIDUAL[name])


@pytest.mark.parametrize("name", NOT_RESIDUAL)
def test_not_residual(name: str) -> None:
    assert not judged(NOT_RESIDUAL[name])


def test_a_stage_of_many_blocks_is_residual_as_a_whole() -> None:
    u = torch.randn(2, requires_grad=True) * 1
    new, start = u, place_of(u)
    for _ in range(2000):  # deeper than Python's stack
        new = torch.relu(new + new.sin())
    assert is_residual(new, start)
