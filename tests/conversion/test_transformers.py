"""Hugging Face transformers, small and random: masks, caches and extra outputs are kept; generation is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.conversion.agreement import check_agreement
from tests.conversion.reference import lm_reference
from torch import nn

import stepnet
from stepnet.conversion import describe

hf = pytest.importorskip("transformers")

IDS = torch.randint(1, 50, (2, 7), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
IMAGES = {"pixel_values": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))}
TOKENS = {"input_ids": IDS, "attention_mask": MASK, "output_hidden_states": True, "output_attentions": True}
WIDTHS = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
EAGER = {"vocab_size": 50, "attn_implementation": "eager"}
ENDS = {"bos_token_id": 0, "eos_token_id": 0}


def build(name: str) -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    resnet = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 3]}
    gpt2 = {"n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 32}
    made: dict[str, Any] = {
        "resnet": lambda: hf.ResNetForImageClassification(hf.ResNetConfig(**resnet, layer_type="basic")),
        "resnet_bottleneck": lambda: hf.ResNetForImageClassification(hf.ResNetConfig(**resnet)),
        "regnet": lambda: hf.RegNetForImageClassification(
            hf.RegNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 3], groups_width=8)
        ),
        "convnext": lambda: hf.ConvNextForImageClassification(
            hf.ConvNextConfig(hidden_sizes=[8, 16], depths=[2, 3], num_stages=2)
        ),
        "vit": lambda: hf.ViTForImageClassification(hf.ViTConfig(**WIDTHS, image_size=32, patch_size=8)),
        "bert": lambda: hf.BertForSequenceClassification(hf.BertConfig(**WIDTHS, **EAGER)),
        "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**gpt2, **EAGER, **ENDS)),
        "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**WIDTHS, **EAGER, **ENDS, num_key_value_heads=1)),
    }
    images = name in ("resnet", "resnet_bottleneck", "regnet", "convnext", "vit")
    return made[name]().eval(), {**IMAGES, "output_hidden_states": True} if images else TOKENS


@pytest.mark.parametrize(
    ("name", "steps", "coefficients"),
    [
        ("resnet", 5, 3), ("resnet_bottleneck", 5, 3), ("regnet", 5, 3), ("convnext", 5, 3), ("vit", 3, 2),
        ("bert", 3, 2), ("gpt2", 3, 2), ("llama", 3, 2),
    ],
)  # fmt: skip
def test_agrees_with_the_original_and_with_the_reference(name: str, steps: int, coefficients: int) -> None:
    """All outputs: logits, hidden states, attentions, keys and values."""
    conversion = check_agreement(*build(name))
    assert (conversion.steps, conversion.coefficients) == (steps, coefficients)


@pytest.mark.parametrize("name", ["vit", "bert", "llama"])
def test_the_example_is_guessed(name: str) -> None:
    assert describe(build(name)[0]).steps == 3


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_generation_with_a_cache_is_generation_without(name: str) -> None:
    model, example = build(name)
    for parameter in model.parameters():  # larger logits: the tokens differ from step to step
        parameter.data.mul_(4)
    converted = stepnet.convert(model, "lm", example, init=-0.5)
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    cached, whole = (converted.generate(IDS[:1], use_cache=use, **options) for use in (True, False))
    assert torch.equal(cached.sequences, whole.sequences)
    torch.testing.assert_close(torch.stack(cached.logits), torch.stack(whole.logits))
    assert not torch.allclose(cached.logits[-1], model.generate(IDS[:1], **options).logits[-1])


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant: bool) -> None:
    model, example = build("llama")
    converted = stepnet.convert(model, "lm", example, init=-0.5).train()

    def gradients() -> list[torch.Tensor]:
        loss = converted(input_ids=IDS, attention_mask=MASK, labels=IDS).loss
        return list(torch.autograd.grad(loss, list(converted.parameters())))

    plain = gradients()
    converted.gradient_checkpointing_enable({"use_reentrant": reentrant})
    if reentrant:
        converted.enable_input_require_grads()
    layer = converted.model.layers[1]
    calls = {"step": 0}
    layer.register_forward_hook(lambda *_: calls.__setitem__("step", calls["step"] + 1))
    if reentrant:  # it allows backward() only
        converted(input_ids=IDS, attention_mask=MASK, labels=IDS).loss.backward()
        found = [parameter.grad for parameter in converted.parameters()]
    else:
        found = gradients()
    for got, want in zip(found, plain, strict=True):
        torch.testing.assert_close(got, want)
    assert calls["step"] == 1  # the block was recomputed, the step was not


def test_a_scheme_of_several_evaluations_refuses_a_cache() -> None:
    model, _ = build("gpt2")
    converted = stepnet.convert(model, "heun", {"input_ids": IDS, "use_cache": False})
    assert converted(input_ids=IDS, use_cache=False).logits.isfinite().all()
    with pytest.raises(stepnet.UserError, match="use_cache=False"):
        converted(input_ids=IDS, use_cache=True)


def t5() -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 3, "num_heads": 2}
    return hf.T5Model(hf.T5Config(**sizes)).eval(), {"input_ids": IDS, "decoder_input_ids": IDS}


def test_a_step_is_a_layer_or_a_sublayer() -> None:
    """T5 has modules for both, GPT-2 for layers only; without `step` a block is the smallest that is a module."""
    model, example = t5()
    counts = {}
    for step in (None, "sublayer", "layer"):
        converted = stepnet.convert(model, "lm", example, step=step, init="identity")
        assert torch.equal(converted(**example)[0], model(**example)[0])
        counts[step] = [len(stage.blocks) for stage in converted.step_conversion.stages]
    assert counts == {None: [6, 9], "sublayer": [6, 9], "layer": [3, 3]}
    gpt2 = build("gpt2")[0]
    for step, count in ((None, 3), ("layer", 3), ("sublayer", 6)):
        assert stepnet.convert(gpt2, "lm", {"input_ids": IDS}, step=step).step_conversion.steps == count


def test_layers_of_t5_by_the_reference() -> None:
    """`u_{n+1} = B(u_n) + k (u_{n-1} - u_n)` of whole blocks, by hooks."""
    model, example = t5()
    converted = stepnet.convert(model, "lm", example, step="layer", init=-0.3)
    reference = lm_reference(model, converted, -0.3)
    torch.testing.assert_close(converted(**example)[0], reference(**example)[0])
    assert not torch.allclose(converted(**example)[0], model(**example)[0])
