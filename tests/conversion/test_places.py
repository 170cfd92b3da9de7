"""The state of a block as any argument, any output, or one entry of a tuple or dict."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import stepnet
from stepnet.conversion.places import Argument, with_entry

X = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Pair(NamedTuple):
    weight: float
    state: Tensor


class Block(nn.Module):
    """A state among other things; `kind` says where."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.linear, self.kind = nn.Linear(4, 4), kind

    def new(self, u: Tensor, context: Tensor) -> Tensor:
        return u + torch.tanh(self.linear(u) * context)

    def forward(self, context: Any, u: Any = None, **options: Any) -> Any:
        if self.kind == "second":
            return self.new(u, context)
        if self.kind == "by name":
            return context, self.new(options["state"], context)
        if self.kind == "tuple":
            return context[0], self.new(context[1], context[0])
        if self.kind == "named tuple":
            return Pair(context.weight, self.new(context.state, context.weight))
        return {**context, "state": self.new(context["state"], context["context"])}


class Net(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(kind) for _ in range(4))
        self.kind = kind

    def forward(self, u: Tensor) -> Tensor:
        context = 0.5 + u.mean()
        for block in self.blocks:
            if self.kind == "second":
                u = block(context, u)
            elif self.kind == "by name":
                _, u = block(context, state=u)
            elif self.kind == "tuple":
                context, u = block((context, u))
            elif self.kind == "named tuple":
                u = block(Pair(0.7, u)).state
            else:
                u = block({"context": context, "state": u})["state"]
        return u


@pytest.mark.parametrize("memory", ["stored", "recompute", "reversible"])
@pytest.mark.parametrize("kind", ["second", "by name", "tuple", "named tuple", "dict"])
def test_the_state_is_found_where_it_is(kind: str, memory: Any) -> None:
    torch.manual_seed(0)
    net = Net(kind).double()
    assert torch.equal(stepnet.convert(net, "lm", X, init="identity", memory=memory)(X), net(X))
    converted = stepnet.convert(net, "lm", X, init=-0.3, memory=memory)
    assert len(stepnet.coefficients(converted)) == 3

    def by_hand() -> Tensor:
        context = 0.7 if kind == "named tuple" else 0.5 + X.mean()
        past, u = None, X
        for block in net.blocks:
            new = block.new(u, context)
            past, u = u, new if past is None else new - 0.3 * (past - u)
        return u

    torch.testing.assert_close(converted(X), by_hand(), rtol=0, atol=1e-13)
    weights = [p for name, p in converted.named_parameters() if "step_k" not in name]
    found = torch.autograd.grad(converted(X).square().sum(), weights)
    expected = torch.autograd.grad(by_hand().square().sum(), list(net.parameters()))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    (states,) = converted.trajectory(X)
    assert len(states) == 5 and torch.equal(states[-1], converted(X))


def test_the_second_argument_by_position_or_by_name() -> None:
    torch.manual_seed(0)
    net = stepnet.convert(Net("second").double(), "lm", X, init=-0.3)
    context = 0.5 + X.mean()
    first = net.blocks[0](context, X)
    assert torch.equal(net.blocks[1](context, u=first), net.blocks[1](context, first))


def test_containers_are_copied_and_keep_their_type() -> None:
    before = {"a": [1, 2], "b": 3}
    assert with_entry(before, ("a", 1), 5) == {"a": [1, 5], "b": 3} and before == {"a": [1, 2], "b": 3}
    changed = with_entry(Pair(0.5, X), (1,), None)
    assert isinstance(changed, Pair) and changed.state is None
    argument = Argument(1, "u", (0,))
    assert argument.of((1, (2, 3)), {}) == 2 and argument.of((1,), {"u": (2, 3)}) == 2
    assert argument.put((1, (2, 3)), {}, 4) == ((1, (4, 3)), {})
    assert argument.put((1,), {"u": [2, 3]}, 4) == ((1,), {"u": [4, 3]})
