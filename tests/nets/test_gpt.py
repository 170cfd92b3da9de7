"""GPT under a scheme, against the same transformer written out in the manner of nanoGPT."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stepnet
from stepnet.errors import UserError
from stepnet.nets.gpt import GPT, SelfAttention
from stepnet.nets.weights import classifier_names, load_weights
from stepnet.schemes import get_scheme, list_schemes

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])


def network(scheme: str = "euler", **options: object) -> GPT:
    torch.manual_seed(0)
    model = stepnet.create_model("gpt2x16", scheme=scheme, num_classes=11, context=6, **options)  # type: ignore[arg-type]
    assert isinstance(model, GPT)
    return model.double()


def norm(u: Tensor, weight: Tensor) -> Tensor:
    mean, variance = u.mean(-1, keepdim=True), u.var(-1, unbiased=False, keepdim=True)
    return (u - mean) / torch.sqrt(variance + 1e-5) * weight


def turned(x: Tensor) -> Tensor:
    """Rotary positions by complex numbers."""
    time, size = x.shape[-2:]
    frequencies = torch.tensor([10_000.0 ** (-2 * j / size) for j in range(size // 2)], dtype=torch.float64)
    angles = torch.arange(float(time))[:, None] * frequencies
    pairs = torch.complex(x[..., : size // 2], x[..., size // 2 :]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([pairs.real, pairs.imag], -1)


def written_out(model: GPT, tokens: Tensor, ks: list[float] | None = None) -> Tensor:
    """Logits by plain operations; with `ks`, one for each step but the first, under LM."""
    w = {name: value.detach() for name, value in model.state_dict().items()}
    u = w["embed.weight"][tokens]
    if "position.weight" in w:
        u = u + w["position.weight"][: tokens.shape[1]]
    before = u
    for n in range(2 * model.layers):
        at = f"stages.0.blocks.{n}"
        h = norm(u, w[f"{at}.norm.weight"])
        if n % 2 == 0:
            heads = model.stages[0].blocks[n].heads  # type: ignore[union-attr, index]
            q, k, v = (
                part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (h @ w[f"{at}.qkv.weight"].T).chunk(3, -1)
            )
            if "position.weight" not in w:
                q, k = turned(q), turned(k)
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            mask = torch.ones(scores.shape[-2:]).tril().bool()
            mixed = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v
            f = mixed.transpose(1, 2).flatten(2) @ w[f"{at}.project.weight"].T
        else:
            f = F.gelu(h @ w[f"{at}.expand.weight"].T) @ w[f"{at}.project.weight"].T
        k_n = 0.0 if ks is None or n == 0 else ks[n - 1]
        u, before = (1 - k_n) * u + k_n * before + f, u
    return norm(u, w["norm.weight"]) @ w["embed.weight"].T


@pytest.mark.parametrize("positions", ["rotary", "learned"])
@pytest.mark.parametrize("scheme", ["euler", "lm"])
def test_logits_are_those_of_the_transformer_written_out(scheme: str, positions: str) -> None:
    model = network(scheme, positions=positions, **({"k": -0.25} if scheme == "lm" else {}))
    wanted = written_out(model, TOKENS, [-0.25] * 3 if scheme == "lm" else None)
    found = model(TOKENS)
    assert found.shape == (2, 6, 11)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_no_position_sees_a_later_one() -> None:
    model, changed = network(), TOKENS.clone()
    changed[:, 4:] = 0
    assert torch.equal(model(TOKENS)[:, :4], model(changed)[:, :4])


@pytest.mark.parametrize("name", [name for name in list_schemes() if get_scheme(name).makes_network])
def test_every_scheme_that_makes_a_network_steps_its_sublayers(name: str) -> None:
    if get_scheme(name).equation.partitioned:
        with pytest.raises(UserError, match=r"advances a pair"):
            network(name)
        return
    model = network(name)
    F.cross_entropy(model(TOKENS).flatten(0, 1), TOKENS.flatten()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("rotary", [True, False])
def test_the_gradients_of_q_k_and_v_are_joined_once(rotary: bool) -> None:
    waiting, names = [SelfAttention(16, 2, rotary=rotary)(torch.randn(1, 5, 16)).grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None:
            names.add(node.name())
            waiting += [parent for parent, _ in node.next_functions]
    assert not {"SelectBackward0", "SliceBackward0"} & names  # each would fill a tensor of zeros, as large as all heads


def test_memory_modes_give_the_same_gradients() -> None:
    gradients = {}
    for memory in ("stored", "recompute"):
        model = network("lm", k=-0.25)
        model.set_memory(memory)  # type: ignore[arg-type]
        model.train()(TOKENS).square().sum().backward()
        gradients[memory] = [p.grad for p in model.parameters()]
    torch.testing.assert_close(gradients["recompute"], gradients["stored"], rtol=1e-12, atol=1e-12)


def test_a_saved_model_is_built_again(tmp_path: Path) -> None:
    model = network("lm", positions="learned", heads=4).float().eval()
    stepnet.save(model, tmp_path / "model.safetensors")
    again = stepnet.load(tmp_path / "model.safetensors")
    assert torch.equal(again(TOKENS), model(TOKENS))
    assert [len(stage) for stage in again.trajectory(TOKENS)] == [5]


def test_the_embedding_is_the_classifier() -> None:
    model = network()
    assert classifier_names(model) >= {"embed.weight"} and model.get_classifier() is model.embed
    model.reset_classifier(7)
    assert model(TOKENS % 7).shape == (2, 6, 7)
    fine_tuned = network()
    changed = load_weights(fine_tuned, model.state_dict(), new_head=True)
    assert changed == ["embed.weight"]
    assert torch.equal(fine_tuned.norm.weight, model.norm.weight)


def test_the_size_of_a_name() -> None:
    model = stepnet.create_model("gpt12x48", num_classes=65)
    assert sum(p.numel() for p in model.parameters()) == 12 * 12 * 48**2 + 65 * 48 + (2 * 12 + 1) * 48


def test_wrong_input_is_one_line() -> None:
    with pytest.raises(UserError, match=r"7 tokens: the network takes sequences of at most 6"):
        network()(torch.zeros(1, 7, dtype=torch.long))
    with pytest.raises(UserError, match=r"expected whole numbers \[batch, time\]"):
        network()(torch.zeros(1, 3, 8, 8))
    with pytest.raises(UserError, match=r"width 48 with 7 heads: expected a multiple of 14"):
        stepnet.create_model("gpt2x48", heads=7)
    with pytest.raises(UserError, match=r"unknown model 'gpt12': did you mean 'gpt12x48'"):
        stepnet.create_model("gpt12")
