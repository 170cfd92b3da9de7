"""Stochastic depth and the running cost on converted networks, against our own networks with the same weights."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from tests.conversion.unstaged import Unstaged
from torch import Tensor, nn

import stepnet
from stepnet.exchange.model_description import describe_network
from stepnet.exchange.rebuild import fill
from stepnet.nets.draws import drawn_options
from stepnet.nets.resnet import cifar_resnet
from stepnet.nets.trajectories import KineticCost, takes_cost

X = torch.randn(4, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def pair(scheme: str, pre: bool, memory: Any = "stored", **options: Any) -> tuple[nn.Module, nn.Module]:
    """Ours and the same network converted."""
    torch.manual_seed(0)
    ours = cifar_resnet(14, scheme=scheme, pre_activation=pre, num_classes=3, **options).double()
    converted = stepnet.convert(Unstaged(copy.deepcopy(ours)), scheme, X, memory=memory, **options)
    with torch.no_grad():
        for network in (ours, converted):
            for name, p in network.named_parameters():
                if name.endswith((".k", "step_k")):
                    p.fill_(-0.3)
    assert converted.step_count == ours.depth == 6
    return ours, converted


def check_same(ours: nn.Module, converted: nn.Module, expected: Tensor, found: Tensor) -> None:
    """Values and gradients; the parameters of ours under the names that they have in the other."""
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    for network, value in ((ours, expected), (converted, found)):
        network.zero_grad()
        value.sum().backward()
    got = {name: p.grad for name, p in converted.named_parameters() if not name.endswith("step_k")}
    for name, p in Unstaged(ours).named_parameters():
        assert p.grad is not None and got[name] is not None, f"no gradient for {name}"
        torch.testing.assert_close(got[name], p.grad, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("mode", ["batch", "drop_path"])
@pytest.mark.parametrize(("scheme", "pre"), [("lm", True), ("lm", False), ("ab2", True)])
def test_gates_act_as_in_our_networks(scheme: str, pre: bool, mode: str) -> None:
    """With the same draws in training, transitions dropped too; and with their means in evaluation."""
    ours, converted = pair(scheme, pre, stochastic_depth={"survival": 0.3, "mode": mode})
    dropped = set()
    for step in range(5):
        options, own = (drawn_options(network, 7, step, range(4)) for network in (ours, converted))
        assert list(map(torch.Tensor.tolist, map(torch.as_tensor, own["noise"]))) == [
            torch.as_tensor(gate).tolist() for gate in options["noise"]
        ]
        dropped |= {n for n, gate in enumerate(options["noise"]) if mode == "drop_path" or gate == 0}
        check_same(ours, converted, ours.train()(X, **options), converted.train()(X, **own))
    assert {1, 2, 4} <= dropped
    torch.testing.assert_close(converted.eval()(X), ours.eval()(X), rtol=0, atol=1e-12)
    torch.testing.assert_close(converted.train()(X), ours.train()(X), rtol=0, atol=1e-10)  # draws of their own


@pytest.mark.parametrize(
    ("scheme", "pre", "memory"),
    [("lm", True, "stored"), ("lm", True, "recompute"), ("lm", True, "reversible"), ("lm", False, "recompute"),
     ("ab2", True, "stored")],
)  # fmt: skip
def test_the_running_cost_is_that_of_our_networks(scheme: str, pre: bool, memory: Any) -> None:
    ours, converted = pair(scheme, pre, memory)
    assert takes_cost(converted) and not takes_cost(Unstaged(ours))
    cost, own = KineticCost(), KineticCost()
    expected, found = ours.train()(X, cost=cost).square().sum(), converted.train()(X, cost=own).square().sum()
    assert cost.total.item() > 0.1
    check_same(ours, converted, expected + 0.5 * cost.total, found + 0.5 * own.total)


def test_memory_modes_take_gates() -> None:
    for memory in ("recompute", "reversible"):
        ours, converted = pair("lm", True, memory, stochastic_depth=0.3)
        for step in range(3):
            options = drawn_options(ours, 3, step, range(4))
            check_same(ours, converted, ours.train()(X, **options), converted.train()(X, **options))


def test_a_dropped_block_is_not_computed() -> None:
    _, converted = pair("lm", False, stochastic_depth=0.5)
    calls: list[int] = []
    for n, step in enumerate(converted.steps):
        step.block.register_forward_hook(lambda *_, n=n: calls.append(n))
    converted.train()(X, noise=[1, 0, 0, 1, 1, 0])
    assert calls == [0, 3, 4]


class Extra(nn.Module):
    """Returns more than its state."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        f = torch.tanh(self.linear(u))
        return u + f, f.mean()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Extra() for _ in range(3))

    def forward(self, u: Tensor) -> dict[str, Tensor]:
        extras = []
        for block in self.blocks:
            u, extra = block(u)
            extras.append(extra)
        return {"state": u, "extras": torch.stack(extras)}


def test_other_outputs_of_a_dropped_block_and_gradients_of_all_parameters() -> None:
    torch.manual_seed(0)
    converted, u = stepnet.convert(Net(), "lm", torch.randn(2, 4), init=-0.3, stochastic_depth=0.5), torch.randn(2, 4)
    output = converted(u, noise=[0, 0, 1])
    first = u - 0.3 * (u - u)
    state = first + torch.tanh(converted.blocks[2].linear(first)) - 0.3 * (u - first)
    torch.testing.assert_close(output["state"], state)
    torch.testing.assert_close(output["extras"][0], torch.tanh(converted.blocks[0].linear(u)).mean())
    output["state"].sum().backward()
    grads = [block.linear.weight.grad for block in converted.blocks]
    assert torch.equal(grads[0], torch.zeros(4, 4)) and torch.equal(grads[1], torch.zeros(4, 4)) and grads[2].any()


def test_a_stochastic_conversion_is_copied_saved_and_reverted() -> None:
    u, network = torch.randn(2, 4), stepnet.convert(Net(), "lm", torch.randn(2, 4), stochastic_depth=0.4).eval()
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert torch.equal(other(u)["state"], network(u)["state"])
        assert other.draw(1, 2, range(3)) == network.draw(1, 2, range(3))
    loaded = fill(Net(), describe_network(network), network.state_dict(), "here", u)
    assert torch.equal(loaded(u)["state"], network(u)["state"])
    assert loaded.draw(1, 2, range(3)) == network.draw(1, 2, range(3))
    plain = stepnet.revert(network)
    assert type(plain) is Net and not hasattr(plain, "draw")
    with pytest.raises(TypeError):
        plain(u, noise=[1, 1, 1])


def test_mistakes_are_refused_in_one_line() -> None:
    u = torch.randn(2, 4)
    network = stepnet.convert(Net(), "lm", u, stochastic_depth={"survival": 0.5, "mode": "drop_path"})
    with pytest.raises(stepnet.UserError, match="2 gates: the network takes 3 steps"):
        network(u, noise=[1, 1])
    network(u, noise=[1, 1, 1])  # whose gates are those of one pass
    with pytest.raises(stepnet.UserError, match=r"called in training without a gate: call the whole network"):
        network.blocks[0](u)
    with pytest.raises(stepnet.UserError, match=r"5 gates for a state of shape \(2, 4\) .* mode='batch'"):
        network(u, **drawn_options(network, 0, 0, range(5)))
    with pytest.raises(stepnet.UserError, match=r"survival = 1\.5: expected 1 or less"):
        stepnet.convert(Net(), "lm", u, stochastic_depth=1.5)
