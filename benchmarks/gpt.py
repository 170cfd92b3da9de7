"""A GPT under a scheme against a plain GPT of the same size, written like nanoGPT.

Same layers, learned positions, tied embedding and AdamW; under Euler both give the same logits for the same weights.
A ratio of 1.031 is 0.97 of the tokens per second. *LM by hand* is the plain GPT with LM's step written into its
forward: its ratio is the cost of LM's arithmetic, and what `lm` takes beyond it is that of the library.

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
TARGETS = {"euler": "≤ 1.00", "lm": "≤ 1.031", "lm by hand": "", "x0": ""}


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

    def attention(self, x: Tensor) -> Tensor:
        return self.attn(self.ln_1(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.ln_2(x))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.feed_forward(x)


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
        return self.lm_head(self.ln_f(self.layers(x)))

    def layers(self, x: Tensor) -> Tensor:
        for block in self.h:
            x = block(x)
        return x


class LMGPT(PlainGPT):
    """`u_{n+1} = u_n + k_n (u_{n-1} - u_n) + f(u_n)`, a step for each sublayer; the first has no k."""

    def __init__(self) -> None:
        super().__init__()
        self.k = nn.Parameter(torch.zeros(2 * LAYERS - 1))

    def layers(self, x: Tensor) -> Tensor:
        first, *rest = (f for block in self.h for f in (block.attention, block.feed_forward))
        past, x = x, x + first(x)
        for f, k in zip(rest, self.k.unbind(), strict=True):
            past, x = x, x.lerp(past, k) + f(x)
        return x


def ours(scheme: str) -> nn.Module:
    options = {"num_classes": TOKENS, "context": CONTEXT, "heads": HEADS, "positions": "learned"}
    return create_model(f"gpt{LAYERS}x{WIDTH}", scheme=scheme, **options)


def by_hand(network: nn.Module) -> PlainGPT:
    """Return the handwritten GPT, plain or with LM's step, with the weights of ours."""
    parameters = dict(network.named_parameters())
    theirs = LMGPT() if "stages.0.k" in parameters else PlainGPT()
    weights = theirs.state_dict()
    if "k" in weights:
        weights["k"] = parameters["stages.0.k"]
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
    for what, size in SIZES.items():
        tokens, targets = torch.randint(TOKENS, (2, size, CONTEXT))
        networks = {scheme: ours(scheme) for scheme in ("euler", "lm", "x0")}
        for scheme in ("euler", "lm"):
            torch.testing.assert_close(networks[scheme](tokens), by_hand(networks[scheme])(tokens))
        networks["lm by hand"] = by_hand(networks["lm"])
        variants = {
            f"training step, {name} / plain GPT, {what}": training_step(networks[name], tokens, targets, adamw=True)
            for name in TARGETS
        }
        count = repeats if size > 1 else 3 * repeats
        baseline, copied = (training_step(by_hand(networks["euler"]), tokens, targets, adamw=True) for _ in range(2))
        ratios, control = compare(variants, baseline, count, control=copied)
        for (name, ratio), target in zip(ratios.items(), TARGETS.values(), strict=True):
            yield Row(name, ratio, control=control, target=target if size > 1 else "")


if __name__ == "__main__":
    measure("GPT against nanoGPT", __doc__, rows, repeats=40)
