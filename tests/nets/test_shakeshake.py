"""Shake-Shake: the paper's formula forward, a gate of its own backward, the mean at evaluation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from stepnet.errors import UserError
from stepnet.nets import Stage, create_model, shakeshake
from stepnet.nets.shakeshake import BranchWeights, Shake, ShakeBlock, cifar_shakeshake, draw_coefficients
from stepnet.randomness import random_words, uniform


def block(shake: Shake) -> ShakeBlock:
    return ShakeBlock(4, 4, 1, 1, shake).double()


def state() -> Tensor:
    return torch.randn(3, 4, 8, 8, dtype=torch.float64)


def branches(own: ShakeBlock, u: Tensor) -> tuple[Tensor, Tensor]:
    first, second = (branch(u) for branch in own.branches)
    return first, second


@pytest.mark.parametrize("dt", [1.0, 0.25])
def test_step_is_the_papers_formula(dt: float) -> None:
    from stepnet.schemes import get_scheme

    own = block(Shake(dt=dt))
    stage = Stage(get_scheme("euler"), [own], dt=dt)
    (own.drawn_noise,) = draw_coefficients(own.shake, 1, range(3), 1)
    eta = torch.from_numpy(uniform(random_words(6, 1))[::2].reshape(3, 1, 1, 1))
    u = state()
    f1, f2 = branches(own, u)
    noise = math.sqrt(dt) * (eta - 0.5)
    torch.testing.assert_close(stage(u), u + (dt / 2 + noise) * f1 + (dt / 2 - noise) * f2, rtol=1e-13, atol=1e-13)


def test_evaluation_takes_the_mean() -> None:
    own = block(Shake()).eval()
    u = state()
    f1, f2 = branches(own, u)
    torch.testing.assert_close(own(u), (f1 + f2) / 2, rtol=1e-13, atol=1e-13)


def test_backward_pass_takes_its_own_coefficient() -> None:
    own = block(Shake())
    a, b = torch.tensor(0.9).double(), torch.tensor(0.2).double()
    own.drawn_noise = BranchWeights(a, b)
    ends = []
    for branch in own.branches:
        branch.register_forward_hook(lambda module, inputs, output: ends.append(output))
    out = own(state())
    for end in ends:
        end.retain_grad()
    gradient = torch.randn_like(out)
    out.backward(gradient)
    torch.testing.assert_close(out, a * ends[0] + (1 - a) * ends[1], rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(ends[0].grad, b * gradient, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(ends[1].grad, (1 - b) * gradient, rtol=1e-13, atol=1e-13)


def test_kinds_and_levels() -> None:
    def draw(shake: Shake) -> BranchWeights:
        return draw_coefficients(shake, 1, range(5), 0)[0]

    keep = draw(Shake(backward="keep"))
    assert keep.forward is keep.backward and keep.forward.shape == (5, 1, 1, 1)
    assert len(keep.forward.unique()) == 5
    even = draw(Shake(forward="even", level="batch"))
    assert even.forward.tolist() == [[[[0.5]]]] and even.backward.item() != 0.5
    shake = draw(Shake())
    assert not torch.equal(shake.forward, shake.backward)


def test_mean_and_variance_of_the_gate() -> None:
    a = draw_coefficients(Shake(dt=0.25), 1, range(20_000), 0)[0].forward
    assert a.mean().item() == pytest.approx(0.5, abs=0.02)
    assert a.var().item() == pytest.approx(1 / 12 / 0.25, rel=0.03)


def test_noise_drawn_before_the_forward_pass_repeats_it() -> None:
    model = cifar_shakeshake(14, width=4)
    x = torch.randn(4, 3, 8, 8)
    noise = model.draw(3, 0, range(4))
    assert len(noise.coefficients) == model.depth == 6
    first, second = model(x, noise=noise), model(x, noise=noise)
    assert torch.equal(first, second)
    assert not torch.equal(model(x), first)  # without it the network draws
    with pytest.raises(UserError, match="noise for 1 blocks: the network has 6"):
        model(x, noise=noise._replace(coefficients=noise.coefficients[:1]))


@pytest.mark.parametrize("level", ["image", "batch"])
def test_ranks_take_their_slices_of_the_noise(level: str) -> None:
    model = cifar_shakeshake(8, width=2, level=level)  # type: ignore[arg-type]
    whole, *parts = (model.draw(0, 5, places).coefficients for places in (range(7), range(3), range(3, 7)))
    for one, first, second in zip(whole, *parts, strict=True):
        for direction in ("forward", "backward"):
            mine = [getattr(part, direction) for part in (first, second)]
            assert torch.equal(getattr(one, direction), torch.cat(mine) if level == "image" else mine[0])
            assert level == "image" or torch.equal(*mine)


def test_a_runge_kutta_step_draws_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All evaluations of a block within a step take one pair of coefficients, drawn before the forward pass."""
    model = cifar_shakeshake(8, width=2, scheme="rk4")
    taken: list[list[Tensor]] = []
    original = shakeshake._Mix.apply
    monkeypatch.setattr(shakeshake._Mix, "apply", lambda *inputs: (taken.append([*inputs[2:]]), original(*inputs))[1])
    model(torch.randn(3, 3, 8, 8))
    assert len(taken) == sum(1 if stage.transition is not None else 4 for stage in model.stages)
    assert len({tuple(a.flatten().tolist() + b.flatten().tolist()) for a, b in taken}) == model.depth == 3
    assert all(own.drawn_noise is None for own in model.shaken)


@pytest.mark.parametrize(("width", "millions"), [(32, 2.9), (64, 11.7), (96, 26.2)])
def test_counts_are_gastaldis(width: int, millions: float) -> None:
    with torch.device("meta"):
        model = create_model(f"shakeshake26_2x{width}d")
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 1) == millions


def test_bad_step_size() -> None:
    with pytest.raises(UserError, match="dt = -1"):
        Shake(dt=-1)


@pytest.mark.parametrize("option", ["forward", "backward", "level"])
def test_bad_options(option: str) -> None:
    with pytest.raises(UserError, match=f"{option} = 'evn': expected '"):
        create_model("shakeshake26_2x32d", **{option: "evn"})
