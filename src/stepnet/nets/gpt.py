"""GPT: a pre-norm transformer whose sublayers are the steps of a scheme (Radford et al. 2019).

    u' = A(u) + M(u)

Attention A and feed-forward network M are two right-hand sides, and each is a step of its own, in turn: under Euler
that is Lie–Trotter splitting, and the transformer as published. `gpt12x48` has 12 layers, 24 steps, of width 48.
Under a splitting (`parallel`, `lie_trotter`, `strang`) a layer is one step, which has both.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.arguments import Count, CountFromZero, checked
from stepnet.errors import UserError, check_known, counted
from stepnet.nets.bounds import BoundOption
from stepnet.nets.early_exit import EarlyExit, early_exit
from stepnet.nets.model_registry import register_family
from stepnet.nets.network import Network
from stepnet.nets.options import Depths, StepSizes
from stepnet.nets.residual import sizes_by_stage
from stepnet.nets.stage import Stage, check_makes_network
from stepnet.nets.transitions import Coupling
from stepnet.schemes import Scheme, get_scheme

Positions = Literal["rotary", "learned"]
INITIAL_DEVIATION = 0.02  # of every matrix, as in GPT-2
ROTARY_BASE = 10_000.0


class SelfAttention(nn.Module):
    """`A(u)`: every position attends to all, or if `causal` to itself and to those before it."""

    def __init__(self, width: int, heads: int, rotary: bool = True, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.rotary, self.causal = heads, rotary, causal
        self.norm = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)

    def forward(self, u: Tensor, evaluation: int = 0) -> Tensor:
        batch, time, width = u.shape
        heads = self.qkv(self.norm(u)).view(batch, time, 3, self.heads, width // self.heads)
        # Split, not indexed: the gradient of an index is as large as all heads, and zero elsewhere.
        if self.rotary:
            qk, v = heads.split((2, 1), dim=2)
            q, k = rotate(qk.transpose(1, 3)).unbind(2)
            v = v.transpose(1, 3).squeeze(2)
        else:
            q, k, v = heads.unbind(2)
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return cast(Tensor, self.project(attended.transpose(1, 2).reshape(batch, time, width)))


class FeedForward(nn.Module):
    """`M(u)`: the same two-layer network at every position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, bias=False)
        self.expand = nn.Linear(width, 4 * width, bias=False)
        self.project = nn.Linear(4 * width, width, bias=False)

    def forward(self, u: Tensor, evaluation: int = 0) -> Tensor:
        return cast(Tensor, self.project(F.gelu(self.expand(self.norm(u)))))


def rotate(x: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021): the pairs `(x_j, x_{j + d/2})` at time t are turned by `t 10000^(-2j/d)`."""
    time, size = x.shape[-2:]
    dtype = torch.promote_types(x.dtype, torch.float32)  # angles of many turns do not fit into half precision
    frequencies = ROTARY_BASE ** (-torch.arange(0, size, 2, device=x.device, dtype=dtype) / size)
    angles = torch.outer(torch.arange(time, device=x.device, dtype=dtype), frequencies)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class Transformer(Network):
    """What GPT and ViT share: one stage of layers, each a step of attention and a step of a feed-forward network."""

    initial_exponent = 0.5

    def __init__(self, num_classes: int, in_channels: int | None, scheme: str | Scheme) -> None:
        super().__init__(num_classes, in_channels)
        self.scheme = get_scheme(scheme)
        check_makes_network(self.scheme, branches=True)
        self.steps_per_block = 1 if self.scheme.splits else 2

    @abstractmethod
    def forward_features(self, x: Tensor, *, exit: float | EarlyExit | None = None) -> Tensor:
        """Return the last states, normalised; with `exit`, those with which each sample leaves the stage."""

    def forward(self, x: Tensor, *, exit: float | EarlyExit | None = None) -> Tensor:
        return self.forward_head(self.forward_features(x, exit=exit))

    def make_layers(
        self,
        layers: int,
        width: int,
        heads: int | None,
        dt: StepSizes,
        k: float | None,
        k_bound: BoundOption,
        depths: Depths | None,
        rotary: bool,
        causal: bool,
    ) -> None:
        """The stage and the last norm, initialised. By default a head is 16 wide, or 64 from a width of 512 on."""
        heads = heads or max(1, width // (64 if width >= 512 else 16))
        if width % (2 * heads):
            raise UserError(f"width {width} with {counted(heads, 'head')}: expected a multiple of {2 * heads}")
        if depths is not None:
            if len(depths) != 1:
                raise UserError(f"depths = {tuple(depths)}: expected one number, of the layers")
            (layers,) = depths
        (dts,) = sizes_by_stage(dt, 1)
        pairs = [(SelfAttention(width, heads, rotary, causal), FeedForward(width)) for _ in range(layers)]
        branches = [f for pair in pairs for f in pair]
        blocks = [Coupling(*pair) for pair in pairs] if self.scheme.splits else branches
        self.layers, self.num_features = layers, width
        self.stages = nn.ModuleList([Stage(self.scheme, blocks, dt=dts, initial_k=k, k_bound=k_bound, width=width)])
        self.feature_info = [{"num_chs": width, "reduction": self.reduction, "module": "stages.0"}]
        self.norm = nn.LayerNorm(width, bias=False)
        self.apply(_initialise)
        for f in branches:  # each of the 2 L adds its share to the variance of the last state
            nn.init.normal_(f.project.weight, std=INITIAL_DEVIATION / (2 * layers) ** 0.5)


class GPT(Transformer):
    """Tokens [batch, time] to logits [batch, time, tokens]; the embedding is also the classifier.

    `num_classes` is the number of tokens, `context` the longest sequence that it takes. `depths=(24,)` are other layers
    than the name says; `dt` is the step size, or a list with one list, of those of all steps.
    """

    tied_embedding = True

    @checked
    def __init__(
        self,
        layers: Count,
        width: Count,
        scheme: str | Scheme = "euler",
        num_classes: CountFromZero = 256,
        heads: Count | None = None,
        context: Count = 256,
        positions: Positions = "rotary",
        dt: StepSizes = 1,
        k: float | None = None,
        k_bound: BoundOption = None,
        depths: Depths | None = None,
    ) -> None:
        super().__init__(num_classes, None, scheme)
        check_known("positions", positions, ("rotary", "learned"))
        self.context = context
        self.position = nn.Embedding(context, width) if positions == "learned" else None
        self.make_layers(layers, width, heads, dt, k, k_bound, depths, rotary=positions == "rotary", causal=True)
        self.reset_classifier(num_classes)

    def forward_features(self, x: Tensor, *, exit: float | EarlyExit | None = None) -> Tensor:
        """The last state, normalised: [batch, time, width].

        With `exit=0.1` a sequence skips the rest of the sublayers after one that changes its state by a tenth or less.
        It does so as a whole, so that an output then depends on later tokens too.
        """
        self.check_input(x)
        u = self.embed(x)
        if self.position is not None:
            u = u + self.position.weight[: x.shape[1]]
        return cast(Tensor, self.norm(self.stages[0](u, exit=early_exit(exit))))

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """The logits of the next token at every position."""
        return features if pre_logits else F.linear(features, self.embed.weight)

    def get_classifier(self) -> nn.Module:
        """The embedding, to which the last layer is tied."""
        return self.embed

    @checked
    def reset_classifier(self, num_classes: Count) -> None:
        """A new embedding, for so many tokens."""
        self.num_classes = num_classes
        like = self.norm.weight
        self.embed = nn.Embedding(num_classes, self.num_features, device=like.device, dtype=like.dtype)
        _initialise(self.embed)

    def check_input(self, x: Tensor) -> None:
        """One line for what are not tokens, or too many."""
        if x.ndim != 2 or x.is_floating_point():
            raise UserError(f"input of shape {tuple(x.shape)} and {x.dtype}: expected whole numbers [batch, time]")
        if x.shape[1] > self.context:
            raise UserError(f"{x.shape[1]} tokens: the network takes sequences of at most {self.context}")


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_DEVIATION)


@register_family(r"gpt(\d{1,4})x(\d{1,5})", example="gpt12x48", family="gpt", num_classes=256, takes="tokens")
def gpt(layers: int, width: int, **options: Any) -> GPT:
    """A GPT of so many layers and so wide: `gpt12x48`."""
    return GPT(layers, width, **options)
