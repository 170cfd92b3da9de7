"""Memory modes of converted networks: the gradients of storing, and less kept."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepnet
from conversion.agreement import awaken
from stepnet.timing.steps import peak_bytes

models = pytest.importorskip("torchvision.models")


def vit(layers: int = 6) -> nn.Module:
    torch.manual_seed(0)
    network: nn.Module = models.VisionTransformer(16, 4, layers, 2, 16, 32, num_classes=4, dropout=0.1)
    awaken(network)  # its head starts at zero, and so would every gradient
    return network.train()


def gradients(model: nn.Module, *args: Any, **options: Any) -> list[Tensor | None]:
    torch.manual_seed(7)
    model.zero_grad()
    output = model(*args, **options)
    (output if isinstance(output, Tensor) else output.logits).square().sum().backward()
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize(
    ("memory", "scheme", "k"),
    [
        ("recompute", "lm", -0.05),
        ("reversible", "lm", -0.9),
        ("reversible", "lm", -0.05),
        ("reversible", "lm+heun", -0.9),
    ],
)
def test_a_vision_transformer_with_dropout(memory: str, scheme: str, k: float) -> None:
    image, model = torch.randn(2, 3, 16, 16, dtype=torch.float64), vit().double()
    stored = stepnet.convert(model, scheme, image, init=k)
    other = stepnet.convert(model, scheme, image, init=k, memory=memory)
    for ours, autograd in zip(gradients(other, image), gradients(stored, image), strict=True):
        torch.testing.assert_close(ours, autograd, rtol=1e-9, atol=1e-10)


def test_batch_norm_of_a_converted_network_moves_once() -> None:
    torch.manual_seed(0)
    image, model = torch.randn(2, 3, 32, 32), models.resnet18(num_classes=4)
    stored = stepnet.convert(model, "lm", image, init=-0.2).train()
    other = stepnet.convert(model, "lm", image, init=-0.2, memory="recompute").train()
    for ours, autograd in zip(gradients(other, image), gradients(stored, image), strict=True):
        assert torch.equal(ours, autograd)
    assert all(torch.equal(a, b) for a, b in zip(other.buffers(), stored.buffers(), strict=True))


def test_gpt2_of_many_layers_keeps_its_last_states() -> None:
    transformers = pytest.importorskip("transformers")
    tokens = torch.randint(50, (2, 32))
    peaks = {}
    for layers in (6, 18):
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            vocab_size=50, n_positions=32, n_embd=32, n_layer=layers, n_head=2, use_cache=False
        )
        model = transformers.GPT2LMHeadModel(config).train()
        for memory in ("stored", "recompute", "reversible"):
            converted = stepnet.convert(model, "lm", {"input_ids": tokens}, init=-0.9, memory=memory)
            found = gradients(converted, input_ids=tokens)
            if memory == "stored":
                expected = found
            for ours, autograd in zip(found, expected, strict=True):
                torch.testing.assert_close(ours, autograd, rtol=1e-3, atol=1e-4 * float(autograd.abs().max()))

            def run(converted: nn.Module = converted) -> None:
                converted(input_ids=tokens).logits.sum().backward()

            peaks[memory, layers] = peak_bytes(run)
    state = 4 * 2 * 32 * 32
    grown = {memory: (peaks[memory, 18] - peaks[memory, 6]) / 12 / state for memory, _ in peaks}
    # With dropout, the state of the random generator (5 kB a layer) is all that a reversible march keeps.
    assert grown["reversible"] < 5056 / state + 0.1 < grown["recompute"] < 3 < 8 < grown["stored"]


def test_auto_and_what_cannot_be() -> None:
    image = torch.randn(1, 3, 16, 16)
    for k, memory in ((-0.9, "reversible"), (-0.01, "recompute")):
        converted = stepnet.convert(vit(), "lm", image, init=k, memory="auto")
        assert {step.step_role.memory for step in converted.modules() if hasattr(step, "step_role")} == {memory}
    with pytest.raises(stepnet.UserError, match=r"the activation after 'layer1\.0' cannot be undone"):
        stepnet.convert(models.resnet18(), memory="reversible")
    with pytest.raises(stepnet.UserError, match="'euler' has no inverse"):
        stepnet.convert(vit(), "euler", image, memory="reversible")
    assert copy.deepcopy(converted)(image).shape == (1, 4)


@pytest.mark.parametrize("memory", ["stored", "reversible"])
def test_a_momentum_network_is_a_conversion_with_a_step_size(memory: str) -> None:
    """`u_{n+1} = u_n + v_{n+1}`, `v_{n+1} = 0.9 v_n + 0.1 f(u_n)` from rest (Sander et al. 2021), by hand."""
    image, model = torch.randn(2, 3, 16, 16, dtype=torch.float64), vit().double().eval()
    converted = stepnet.convert(model, "lm", image, init=-0.9, dt=0.1, memory=memory).train()
    for module in converted.modules():
        module.training = memory == "reversible" and not isinstance(module, nn.Dropout)  # no dropout
    seen: list[Tensor] = []
    layers = model.encoder.layers
    layers[0].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    model(image)
    u, v = seen[0], torch.zeros_like(seen[0])
    for layer in layers:
        v = 0.9 * v + 0.1 * (layer(u) - u)
        u = u + v
    torch.testing.assert_close(converted(image), model.heads(model.encoder.ln(u)[:, 0]), rtol=1e-12, atol=1e-12)
