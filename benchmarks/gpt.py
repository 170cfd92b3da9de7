"""A GPT under a scheme against a plain GPT of the same size, written like nanoGPT.

Same layers, learned positions, tied embedding and AdamW; under Euler both give the same logits for the same weights.
A ratio of 1.03 is 0.97 of the tokens per second.

python benchmarks/gpt.py [--repeats 40]
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from script import measure
from torch import Tensor, nn

from stepnet.nets import create_model
from stepnet.timing.harness import Row, compare
from stepnet.timing.steps import training_step

LAYERS, WIDTH, HEADS, TOKENS, CONTEXT = 12, 48, 3, 84, 64
SIZES = {"batch 16 x 64": 16, "batch 1 x 64": 1}
TARGETS = {"euler": "≤ 1.00", "lm": "≤ 1.03", "x0": ""}


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.c_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        parts = self.c_attn(x).split(width, dim=2)
        q, k, v = (part.view(batch, time, HEADS, width // HEADS).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(batch, time, width))


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(WIDTH, bias=False), Attention()
        self.ln_2, self.mlp = nn.LayerNorm(WIDTH, bias=False), MLP()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class PlainGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(TOKENS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH, bias=False)
        self.lm_head = nn.Linear(WIDTH, TOKENS, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def ours(scheme: str) -> nn.Module:
    options = {"num_classes": TOKENS, "context": CONTEXT, "heads": HEADS, "positions": "learned"}
    return create_model(f"gpt{LAYERS}x{WIDTH}", scheme=scheme, **options)


def plain(network: nn.Module) -> PlainGPT:
    """Return the plain GPT with the weights of ours."""
    theirs = PlainGPT()
    weights, parameters = theirs.state_dict(), dict(network.named_parameters())
    for n in range(LAYERS):
        attention, feed = f"stages.0.blocks.{2 * n}.", f"stages.0.blocks.{2 * n + 1}."
        for name, from_name in {
            f"h.{n}.ln_1.weight": f"{attention}norm.weight",
            f"h.{n}.attn.c_attn.weight": f"{attention}qkv.weight",
            f"h.{n}.attn.c_proj.weight": f"{attention}project.weight",
            f"h.{n}.ln_2.weight": f"{feed}norm.weight",
            f"h.{n}.mlp.c_fc.weight": f"{feed}expand.weight",
            f"h.{n}.mlp.c_proj.weight": f"{feed}project.weight",
        }.items():
            weights[name] = parameters[from_name]
    ends = {"wte": "embed", "lm_head": "embed", "wpe": "position", "ln_f": "norm"}
    weights |= {f"{name}.weight": parameters[f"{from_name}.weight"] for name, from_name in ends.items()}
    theirs.load_state_dict(weights)
    return theirs


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    torch.manual_seed(0)
    euler = ours("euler")
    for what, size in SIZES.items():
        tokens, targets = torch.randint(TOKENS, (2, size, CONTEXT))
        torch.testing.assert_close(euler(tokens), plain(euler)(tokens))
        networks = {f"training step, {scheme} / plain GPT, {what}": ours(scheme) for scheme in TARGETS}
        variants = {name: training_step(network, tokens, targets, adamw=True) for name, network in networks.items()}
        count = repeats if size > 1 else 3 * repeats
        baseline, copied = (training_step(plain(euler), tokens, targets, adamw=True) for _ in range(2))
        ratios, control = compare(variants, baseline, count, control=copied)
        for (name, ratio), target in zip(ratios.items(), TARGETS.values(), strict=True):
            yield Row(name, ratio, control=control, target=target if size > 1 else "")


if __name__ == "__main__":
    measure("GPT against nanoGPT", __doc__, rows, repeats=40)
