"""What is written down of a network's one run, and that the network does not notice it."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from stepnet.conversion.trace import trace
from stepnet.errors import UserError


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(4, 4)

    def forward(self, u: Tensor) -> Tensor:
        return u + torch.dropout(self.f(u), 0.5, self.training)


class Overwriting(nn.Module):
    def forward(self, u: Tensor) -> Tensor:
        return u.add_(torch.rand_like(u))


class Refusing(nn.Module):
    def forward(self, u: Tensor) -> Tensor:
        raise RuntimeError("these shapes do not fit\n  a second line\n  a third")


def test_each_call_is_told_with_what_the_block_did() -> None:
    first, plain, last = Residual(), nn.Linear(4, 4), Overwriting()
    network = nn.Sequential(first, plain, last, first)
    blocks = {"first": first, "plain": plain, "last": last}
    calls = trace(network, torch.randn(2, 4), blocks)
    assert [call.name for call in calls] == ["first", "plain", "last", "first"]
    assert [call.residual for call in calls] == [True, False, True, True]
    assert [call.overwrites for call in calls] == [False, False, True, False]
    assert all(one.output_key == other.input_key for one, other in pairwise(calls))


def test_flags_hooks_and_random_numbers_are_as_they_were() -> None:
    network = nn.Sequential(Residual().eval(), Overwriting()).requires_grad_(False)
    flags = [module.training for module in network.modules()]
    torch.manual_seed(0)
    before = torch.get_rng_state()
    trace(network, torch.randn(2, 4, generator=torch.Generator().manual_seed(1)), dict(network.named_children()))
    assert torch.equal(torch.get_rng_state(), before)
    assert [module.training for module in network.modules()] == flags
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


@pytest.mark.parametrize("example", [None, torch.zeros(2, 4)])
def test_a_network_that_cannot_run_is_told_in_one_line(example: Tensor | None) -> None:
    network = nn.Sequential(Refusing(), Residual())
    message = r"^.*cannot run on the example \(\[.*\]\): RuntimeError: these shapes do not fit.*$"
    with pytest.raises(UserError, match=message) as caught:
        trace(network, example, {"1": network[1]})
    assert "\n" not in str(caught.value)
    assert ("give an example=" in str(caught.value)) is (example is None)
