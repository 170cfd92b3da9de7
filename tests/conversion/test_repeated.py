"""Blocks that are called several times, and sums inside a forward: one step, and one k, for each call."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import stepnet
from stepnet.conversion import describe
from stepnet.extras import import_extra
from stepnet.report.dynamics import network_steps

X = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, u: Tensor) -> Tensor:
        return u + torch.tanh(self.linear(u))


class Looped(nn.Module):
    """Two blocks, called in turn: a recurrent network, seen as a deep one."""

    def __init__(self, turns: int = 3, noise: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.turns, self.noise = turns, noise
        self.reentrant: bool | None = None

    @property
    def order(self) -> list[nn.Module]:
        return [*self.blocks] * self.turns

    def forward(self, u: Tensor) -> Tensor:
        for block in self.order:
            u = block(u) if self.reentrant is None else checkpoint(block, u, use_reentrant=self.reentrant)
            if self.training and self.noise:
                u = u + self.noise * torch.randn_like(u)
        return u


def tanh_of(layer: nn.Module, v: Tensor) -> Tensor:
    return torch.tanh(layer(v))


class Inline(nn.Module):
    """Sums in one forward; every second f is a function that closes over the loop's variable."""

    def __init__(self, depth: int = 5) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(depth))
        self.residual = stepnet.Residual()

    def forward(self, u: Tensor) -> Tensor:
        for n, layer in enumerate(self.layers):
            u = self.residual(u, partial(tanh_of, layer) if n % 2 else lambda v: torch.tanh(layer(v)))  # noqa: B023
        return u


def built(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().double()


def by_hand(net: nn.Module, u: Tensor, ks: list[float]) -> Tensor:
    layers = [block.linear for block in net.order] if isinstance(net, Looped) else list(net.layers)
    past = None
    for layer, k in zip(layers, [0.0, *ks], strict=True):
        new = u + torch.tanh(layer(u))
        past, u = u, new if past is None else new + k * (past - u)
    return u


@pytest.mark.parametrize("kind", [Looped, Inline])
def test_each_call_is_a_step_with_a_k_of_its_own(kind: type[nn.Module]) -> None:
    net = built(kind)
    assert torch.equal(stepnet.convert(net, "lm", X, init="identity")(X), net(X))
    converted = stepnet.convert(net, "lm", X, init=-0.3)
    depth = 6 if kind is Looped else 5
    found = stepnet.coefficients(converted)
    assert len(found) == depth - 1 and set(found.values()) == {-0.3}
    (row,) = network_steps(converted)  # in the order of the calls
    with torch.no_grad():
        for n, step in enumerate(row[1:], 1):
            step.block.step_k_of(step.role).fill_(-0.1 * n)
    ks = [-0.1 * n for n in range(1, depth)]
    assert [step.k for step in network_steps(converted)[0][1:]] == pytest.approx(ks)
    torch.testing.assert_close(converted(X), by_hand(net, X, ks), rtol=0, atol=1e-13)
    (states,) = converted.trajectory(X)
    assert len(states) == depth + 1 and torch.equal(states[-1], converted(X))
    for other in (copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))):
        assert torch.equal(other(X), converted(X))
    assert torch.equal(stepnet.revert(converted)(X), net(X)) and not stepnet.coefficients(converted)


@pytest.mark.parametrize("kind", [Looped, Inline])
@pytest.mark.parametrize("memory", ["recompute", "reversible"])
def test_gradients_are_those_of_stored_states(kind: type[nn.Module], memory: Any) -> None:
    """A lambda of a loop is evaluated again with the layer that it had, not with the last one."""
    net = built(kind)

    def gradients(mode: Any) -> list[Tensor]:
        converted = stepnet.convert(net, "lm", X, init=-0.3, memory=mode)
        return list(torch.autograd.grad(converted(X).square().sum(), list(converted.parameters())))

    for found, expected in zip(gradients(memory), gradients("stored"), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


class Functions(nn.Module):
    """Sums whose functions keep their layer in a keyword default, call themselves, or are passed by name."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(3))
        self.residual, self.kind = stepnet.Residual(), kind

    def forward(self, u: Tensor) -> Tensor:
        for layer in self.layers:

            def recursive(v: Tensor, times: int = 1, layer: nn.Module = layer) -> Tensor:
                return recursive(v, times - 1, layer) if times else layer(v)

            functions = {
                "keyword": lambda v, *, layer=layer: layer(v),
                "closure": lambda v, *, scale=0.5, layer=layer: scale * self.layers[0](layer(v)),
                "recursive": recursive,
            }
            u = self.residual(u, f=layer) if self.kind == "f=" else self.residual(u, functions[self.kind])
        return u


@pytest.mark.parametrize("kind", ["keyword", "closure", "recursive", "f="])
def test_a_function_is_evaluated_again_with_its_keywords_and_its_statistics(kind: str) -> None:
    torch.manual_seed(0)
    net = Functions(kind).double().train()

    def after_a_pass(mode: Any) -> list[Tensor]:
        converted = stepnet.convert(net, "lm", X, init=-0.3, memory=mode)
        gradients = torch.autograd.grad(converted(X).square().sum(), list(converted.parameters()))
        return [*gradients, *converted.buffers()]

    for found, expected in zip(after_a_pass("recompute"), after_a_pass("stored"), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scheme", ["heun", "ab2", "leapfrog"])
def test_other_schemes(scheme: str) -> None:
    net = built(Looped)
    fs = [lambda v, c, i, block=block: block(v) - v for block in net.order]
    *_, expected = stepnet.schemes.march(stepnet.get_scheme(scheme), fs, X)
    torch.testing.assert_close(stepnet.convert(net, scheme, X)(X), expected)


@pytest.mark.parametrize("kind", [Looped, Inline])
def test_graphs_of_a_network_that_calls_a_block_again(kind: type[nn.Module]) -> None:
    converted = stepnet.convert(built(kind), "lm", X, init=-0.3).eval()
    torch.testing.assert_close(torch.export.export(converted, (X,), strict=False).module()(X), converted(X))
    torch.testing.assert_close(torch.fx.symbolic_trace(converted)(X), converted(X))


def test_one_call_more_or_a_lost_past_is_an_error() -> None:
    converted = stepnet.convert(built(Looped), "lm", X, init=-0.3)
    converted.turns = 4
    with pytest.raises(stepnet.UserError, match=r"'blocks.0' takes steps 0, 2, 4 of its chain, .* the state of step 6"):
        converted(X)
    net = built(Looped)
    net.blocks = net.blocks[:1]  # every call could be the first
    converted = stepnet.convert(net, "lm", X, init=-0.3)
    converted.reentrant = True
    with pytest.raises(stepnet.UserError, match=r"a state without a past: .* use_reentrant=False"):
        converted(X.clone().requires_grad_()).sum().backward()
    converted.reentrant = False
    converted(X.clone().requires_grad_()).sum().backward()


def test_a_state_that_is_altered_between_calls_in_training_is_no_row() -> None:
    """In evaluation there is no noise; in training each call would seem to be the first."""
    with pytest.raises(stepnet.UserError, match="called several times, and its state is altered in training"):
        stepnet.convert(Looped(noise=0.5).double(), "lm", X)


class Siamese(nn.Module):
    """The same row of blocks on two inputs."""

    def __init__(self, other: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.other = other

    def forward(self, u: Tensor) -> Tensor:
        v = 2 * u
        for block in self.blocks:
            u = block(u)
        for block in reversed(self.blocks) if self.other else self.blocks:
            v = block(v)
        return u - v


def test_a_row_that_is_run_on_several_inputs_keeps_its_k() -> None:
    torch.manual_seed(0)
    net = Siamese().double()
    converted = stepnet.convert(net, "lm", X, init=-0.3)
    assert len(stepnet.coefficients(converted)) == 2
    row = nn.Sequential(*net.blocks)
    row = stepnet.convert(row, "lm", X, init=-0.3)
    torch.testing.assert_close(converted(X), row(X) - row(2 * X), rtol=0, atol=1e-13)
    with pytest.raises(stepnet.UserError, match=r"blocks.0: called in different chains of blocks"):
        stepnet.convert(Siamese(other=True).double(), "lm", X)


def test_albert_calls_one_layer_for_its_whole_depth() -> None:
    hf = import_extra("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
    config = hf.AlbertConfig(**sizes, embedding_size=8, vocab_size=50, attn_implementation="eager")
    net = hf.AlbertModel(config).double().eval()
    ids = torch.arange(1, 15).reshape(2, 7)
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    example = {"input_ids": ids, "attention_mask": mask}
    same = stepnet.convert(net, "lm", example, init="identity")(**example)
    assert torch.equal(same.last_hidden_state, net(**example).last_hidden_state)

    converted = stepnet.convert(net, "lm", example, init=-0.5)
    (stage,) = describe(converted).stages
    assert (len(stage.blocks), stage.coefficients, describe(converted).found) == (4, 3, 1)
    layer, states = net.encoder.albert_layer_groups[0].albert_layers[0], []

    def lm(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        """The term by a hook on the one layer, with every state cloned."""
        states.append(args[0].clone())
        new = output[0] if isinstance(output, tuple) else output
        new = new if len(states) == 1 else new - 0.5 * (states[-2] - states[-1])
        return (new, *output[1:]) if isinstance(output, tuple) else new

    layer.register_forward_hook(lm)
    torch.testing.assert_close(
        converted(**example).last_hidden_state, net(**example).last_hidden_state, rtol=0, atol=1e-13
    )


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.residual = stepnet.Residual()

    def forward(self, u: Tensor) -> Tensor:
        return self.residual(self.residual(u, self.norm), self.norm)


def test_batch_norm_in_a_sum_moves_once_and_is_refused_where_it_would_need_more_statistics() -> None:
    net = Normed().double()
    with pytest.raises(stepnet.UserError, match=r"'heun' evaluates f several times .* 'residual' .* block of its own"):
        stepnet.convert(net, "heun", X)
    converted = stepnet.convert(net, "lm", X, init="identity", memory="recompute")
    converted(X).sum().backward()
    net(X)
    assert torch.equal(converted.norm.running_mean, net.norm.running_mean)
