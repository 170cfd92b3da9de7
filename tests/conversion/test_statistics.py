"""A block that a step evaluates several times keeps the statistics of its batch norm apart."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

import stepnet
from stepnet.nets.statistics import BUFFERS


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width, momentum=1.0)

    def forward(self, u: Tensor) -> Tensor:
        return u + self.norm(self.linear(u))


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block(), Block()).double()


@pytest.fixture
def u() -> Tensor:
    return torch.randn(1000, 4, dtype=torch.double, generator=torch.Generator().manual_seed(1))


def trained(network: nn.Sequential, scheme: str, u: Tensor) -> nn.Sequential:
    """One forward in training: with momentum 1 the running statistics are those of `u`."""
    converted = stepnet.convert(network, scheme, u).train()
    with torch.no_grad():
        converted(u)
    return converted


@pytest.mark.parametrize("scheme", ["heun", "rk4", "neumann2", "fractal2", "ab3"])
def test_evaluation_mode_is_what_training_was(network: nn.Sequential, u: Tensor, scheme: str) -> None:
    """But for the running variance, which torch divides by n - 1."""
    converted = trained(network, scheme, u)
    torch.testing.assert_close(converted.eval()(u), converted.train()(u), rtol=0, atol=0.03)


def test_each_evaluation_has_the_mean_of_its_own_state(network: nn.Sequential, u: Tensor) -> None:
    block = copy.deepcopy(network[0]).train()
    with torch.no_grad():
        at_start, at_end = block.linear(u), block.linear(block(u))
    norm = trained(network, "heun", u)[0].norm
    torch.testing.assert_close(norm.running_mean, at_start.mean(0))
    torch.testing.assert_close(norm.step_running_mean_1, at_end.mean(0))
    torch.testing.assert_close(norm.step_running_var_1, at_end.var(0))
    assert norm.num_batches_tracked == norm.step_num_batches_tracked_1 == 1


def test_only_steps_of_several_evaluations_have_more(network: nn.Sequential, u: Tensor) -> None:
    def sets(scheme: str) -> list[int]:
        converted = stepnet.convert(network, scheme, u)
        return [len(list(block.norm.buffers())) // len(BUFFERS) for block in converted]

    assert sets("lm") == [1, 1, 1]
    assert sets("rk4") == [4, 4, 4]
    assert sets("ab3")[2] == 1 < sets("ab3")[0]  # only its start is a Runge-Kutta step


def test_copies_checkpoints_and_the_way_back(network: nn.Sequential, u: Tensor) -> None:
    converted = trained(network, "heun", u).eval()
    state, out = converted.state_dict(), converted(u)
    assert torch.equal(copy.deepcopy(converted)(u), out)
    assert torch.equal(pickle.loads(pickle.dumps(converted))(u), out)
    other = stepnet.convert(network, "heun", u).eval()
    other.load_state_dict(state)
    assert torch.equal(other(u), out)
    network[0].norm.running_mean.fill_(3.0)
    other.load_state_dict(network.state_dict())  # the original's, strictly: all evaluations begin with its statistics
    assert (other[0].norm.step_running_mean_1 == 3).all()
    other[0].norm.reset_running_stats()
    assert not other[0].norm.running_mean.any() and not other[0].norm.step_running_mean_1.any()
    stepnet.revert(other)
    assert type(other[0].norm) is nn.BatchNorm1d and other.state_dict().keys() == network.state_dict().keys()
    assert vars(other[0].norm).keys() == vars(network[0].norm).keys()


def test_compiled_whole(network: nn.Sequential, u: Tensor) -> None:
    torch._dynamo.reset()
    converted = trained(network, "heun", u).eval()
    compiled = torch.compile(converted, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(u), converted(u))
