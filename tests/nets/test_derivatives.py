"""Forward mode against reverse mode and central differences: every scheme, ours and converted, in every memory mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, hessian, jacfwd, vmap

import stepnet
from stepnet.errors import UserError
from stepnet.nets.march import Memory
from stepnet.nets.shakeshake import cifar_shakeshake
from stepnet.nets.stage import Stage
from stepnet.nets.transitions import Coupling
from stepnet.schemes import get_scheme

WIDTH, DEPTH = 2, 4
MODES: tuple[Memory, ...] = ("stored", "recompute", "reversible", "auto")
SCHEMES = [name for name in stepnet.list_schemes() if get_scheme(name).stages < 8 and get_scheme(name).makes_network]
SCHEMES += ["lm+heun", "lm+neumann2", "lm+coupled", "lm+lie_trotter"]


class Slope(nn.Module):
    """A right-hand side without kinks."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        return torch.tanh(self.linear(u)) / 2


class Block(Slope):
    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        return u + super().forward(u)


class OfPairs(nn.Module):
    """A stage of pairs as a function of one tensor."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.stage((x, x.flip(-1) / 2)), -1)


def own(scheme: str, memory: Memory) -> nn.Module:
    method = get_scheme(scheme)
    options: dict[str, Any] = {"initial_k": -0.3} if method.trainable and not method.learned else {}
    blocks: list[nn.Module] = [Slope() for _ in range(DEPTH)]
    if len(method.functions) > 1:
        blocks = [Coupling(f, Slope()) for f in blocks]
    stage = Stage(method, blocks, memory=memory, width=WIDTH, **options).double()
    if method.partitioned:
        return OfPairs(stage)
    for parameter in () if stage.mixing is None else stage.mixing.parameters():
        nn.init.normal_(parameter, mean=0.3, std=0.3)
    return stage


def converted(scheme: str, memory: Memory) -> nn.Module:
    options = {"init": -0.3} if get_scheme(scheme).trainable else {}
    network = nn.Sequential(*(Block() for _ in range(DEPTH)))
    return stepnet.convert(network, scheme, example=state(), memory=memory, **options)


def cases() -> list[tuple[Callable[[str, Memory], nn.Module], str, Memory]]:
    """All combinations that can be built: a scheme without an inverse is not reversible, a pair is not converted.

    "auto" is one of the others; which one, `test_memory_modes` shows.
    """
    found = []
    for make in (own, converted):
        for scheme in SCHEMES:
            method = get_scheme(scheme)
            modes: list[Memory] = ["stored", "recompute"]
            modes += ["reversible"] if method.invertible else []
            modes += ["auto"] if scheme == "lm" else []
            found += [
                (make, scheme, mode)
                for mode in modes
                if make is own or (len(method.functions) == 1 and not method.learned)
            ]
    return found


def state(*batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*batch, WIDTH, dtype=torch.float64, generator=generator)


def differences(f: Callable[[Tensor], Tensor], x: Tensor, h: float) -> Tensor:
    """The Jacobian by central differences."""
    directions = h * torch.eye(WIDTH, dtype=torch.float64)
    return torch.stack([(f(x + e) - f(x - e)).detach() / (2 * h) for e in directions], -1)


def close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-11) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def gradient(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """By autograd, as a training step takes it."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad(f(x), x)[0]


@cache
def differences_of(make: Callable[[str, Memory], nn.Module], scheme: str) -> tuple[Tensor, Tensor]:
    """The Jacobian of a network and the Hessian of `weigh`, by central differences on stored states."""
    torch.manual_seed(0)
    network = make(scheme, "stored").train()
    return (
        differences(network, state(), 1e-6),
        differences(lambda x: gradient(lambda x: weigh(network(x)), x), state(), 1e-5),
    )


def weigh(output: Tensor) -> Tensor:
    return (output**3).sum() / 3


@pytest.mark.parametrize(("make", "scheme", "memory"), cases())
def test_all_derivatives_agree(make: Callable[[str, Memory], nn.Module], scheme: str, memory: Memory) -> None:
    torch.manual_seed(0)
    network, x, direction = make(scheme, memory).train(), state(), state(2)[1]
    jacobian, second = differences_of(make, scheme)

    leaf = x.clone().requires_grad_()
    rows = [torch.autograd.grad(out, leaf, retain_graph=True)[0] for out in network(leaf)]
    exact = torch.stack(rows)
    close(exact, jacobian, 1e-7)
    close(jacfwd(network)(x), exact)
    for mode in (torch.enable_grad, torch.no_grad):
        with mode(), forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(network(forward_ad.make_dual(x, direction))).tangent
        assert tangent is not None
        close(tangent, exact @ direction)

    def loss(x: Tensor) -> Tensor:
        return weigh(network(x))

    exact_second = hessian(loss)(x)
    close(exact_second, second, 1e-6)
    (slope,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    close(torch.autograd.grad(slope @ direction, leaf)[0], exact_second @ direction)
    # Of a linear loss, whose gradient does not read the last state.
    (slope,) = torch.autograd.grad(network(leaf).sum(), leaf, create_graph=True)
    inner = torch.autograd.grad(slope @ direction, leaf)[0]
    close(inner, torch.func.grad(lambda x: torch.func.grad(lambda x: network(x).sum())(x) @ direction)(x))

    batch = state(2)
    close(vmap(torch.func.grad(loss))(batch), torch.stack([gradient(loss, u) for u in batch]))


@pytest.mark.parametrize("make", [own, converted])
@pytest.mark.parametrize("memory", MODES)
def test_forward_mode_in_the_parameters(make: Callable[[str, Memory], nn.Module], memory: Memory) -> None:
    """In `k` and the weights, by `functional_call`."""
    torch.manual_seed(0)
    network, x = make("lm", memory).train(), state()
    parameters = {name: p.detach() for name, p in network.named_parameters()}
    forward = jacfwd(lambda p: functional_call(network, p, (x,)))(parameters)
    output = network(x)
    for n, value in enumerate(output):
        rows = torch.autograd.grad(value, list(network.parameters()), retain_graph=True)
        for (name, ours), row in zip(forward.items(), rows, strict=True):
            assert row.abs().max() > 1e-6, name
            close(ours[n], row)


@pytest.mark.parametrize("make", [own, converted])
@pytest.mark.parametrize("memory", MODES)
def test_parameters_lent_for_one_call_are_those_of_its_replay(
    make: Callable[[str, Memory], nn.Module], memory: Memory
) -> None:
    """`functional_call` has taken its parameters back when the backward pass repeats the blocks."""
    torch.manual_seed(0)
    network, x = make("lm", memory).train(), state()
    lent = {name: (1.5 * p + 0.1).detach().requires_grad_() for name, p in network.named_parameters()}
    output = functional_call(network, lent, (x,))
    ours = torch.autograd.grad(output.square().sum(), list(lent.values()))
    with torch.no_grad():
        for name, p in network.named_parameters():
            p.copy_(lent[name])
    theirs = torch.autograd.grad(network(x).square().sum(), list(network.parameters()))
    for one, other in zip(ours, theirs, strict=True):
        assert other.abs().max() > 1e-6
        close(one, other)


def functional(network: nn.Module, **options: Any) -> Callable[[Tensor], Tensor]:
    """A network in training; a transform wants buffers that are its own to move."""
    return lambda x: functional_call(
        network, {name: value.clone() for name, value in network.state_dict().items()}, (x,), options
    )


@pytest.mark.parametrize("memory", MODES)
def test_stochastic_depth_has_a_tangent(memory: Memory) -> None:
    """The zero gradient of a dropped block is a node of its own in the graph."""
    torch.manual_seed(0)
    network = stepnet.create_model("lm_resnet20", stochastic_depth=0.5, num_classes=2).double().train()
    network.set_memory(memory if memory != "auto" else "stored")
    image = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    f = functional(network, noise=[1, 0, 1] * 3)
    _, tangent = torch.func.jvp(lambda x: f(x).square().sum(), (image,), (image,))
    close(tangent, (gradient(lambda x: f(x).square().sum(), image) * image).sum(), 1e-9)


def test_shake_shake_has_a_derivative_where_its_gradient_is_one() -> None:
    image = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    for backward in ("keep", "shake"):
        torch.manual_seed(0)
        network = cifar_shakeshake(8, 2, backward=backward, num_classes=2).double().train()
        f = functional(network, noise=network.draw(0, 0, range(2)))

        def loss(x: Tensor, f: Callable[[Tensor], Tensor] = f) -> Tensor:
            return f(x).square().sum()

        if backward == "keep":
            close(torch.func.jvp(loss, (image,), (image,))[1], (gradient(loss, image) * image).sum())
            continue
        with pytest.raises(UserError, match=r"^forward mode and torch.func on Shake-Shake.*backward='keep', or eval"):
            torch.func.jvp(loss, (image,), (image,))
        x = image.clone().requires_grad_()
        with pytest.raises(UserError, match=r"^second derivatives of Shake-Shake.*backward='keep', or eval"):
            torch.autograd.grad(loss(x), x, create_graph=True)
