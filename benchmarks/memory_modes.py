"""Peak of live memory of a training step against depth: our modes beside other libraries; and what the modes cost.

    python benchmarks/memory_modes.py [--repeats 7]

CIFAR ResNets of depth 20 to 1202 (n = (depth - 2) / 6 pre-activation blocks at each of 16, 32 and 64 channels), batch
4, forward and backward pass. LM and momentumnet: k = -0.9, dt = 0.1. RevNet and memcnn: n couplings of two blocks,
each on half of the channels. torch: `checkpoint_sequential` in sqrt(n) segments. Counted from torch's allocations,
without the parameters and their gradients, which grow with depth in every mode: the same in every run, whatever else
the machine does. (momentumnet hands over the gradients of a stage at once, and holds them twice.) The transformers
are converted, with the same k and dt. Gradients are compared at depth 110: the norm of the difference over the norm.
Times are those of batch 32. A mode evaluates the blocks once more, so the share of a forward pass is the least that it
can cost; only recomputation by single steps leaves out the last convolution of each block, which no gradient needs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from functools import partial
from unittest.mock import patch

import torch
import torch.nn.functional as F
from reversible import FORWARD, LEAST, coupled_stage, memcnn_stage, momentumnet_stage
from script import measure
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from stepnet import convert, create_model, get_scheme
from stepnet.nets import reversible
from stepnet.nets.blocks import PreActivation, basic
from stepnet.nets.march import Memory
from stepnet.nets.stage import Stage
from stepnet.timing.harness import Row, Spread, Variant, compare
from stepnet.timing.steps import batch, gradient, peak_bytes

MIB = 2**20
DEPTHS, WIDTHS, SIZE = (20, 56, 110, 1202), (16, 32, 64), 4
OPTIONS = {"k": -0.9, "dt": 0.1}
INEXACT = "reversible with sums in single precision, whose gradients are wrong"


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    for depth in DEPTHS[:1] if quick else DEPTHS:
        for name, make in CONTESTANTS.items():
            yield mebibytes(f"{name}, depth {depth}", Staged(make, depth), batch(SIZE)[0])
    yield from transformers(4 if quick else 24)
    yield from gradients(20 if quick else 110)
    yield from times(repeats, 8 if quick else 32)


def times(repeats: int, size: int) -> Iterator[Row]:
    """Time a training step in each mode over a stored one; a mode evaluates the forward pass again."""
    images, _ = batch(size)
    stored, *others = (create_model("preact_resnet20", scheme="lm", **OPTIONS) for _ in range(3))
    variants: dict[str, Variant] = {FORWARD: partial(stored, images)}
    for mode, model in zip(("recompute", "reversible"), others, strict=True):
        model.set_memory(mode)
        variants[mode] = gradient(model, images)
    variants[INEXACT] = partial(inexactly, variants["reversible"])
    ratios, control = compare(variants, gradient(stored, images), repeats)
    for what, ratio in ratios.items():
        limit = {FORWARD: {"note": LEAST}, INEXACT: {}}.get(what, {"target": "≤ 1.4"})
        yield Row(f"time over stored, {what}, LM ResNet-20, batch {size}", ratio, control=control, **limit)


class Staged(nn.Module):
    """A CIFAR ResNet whose three stages are made by `stage(blocks, width)`."""

    def __init__(self, stage: Callable[[int, int], nn.Module], depth: int) -> None:
        super().__init__()
        blocks, inputs = (depth - 2) // 6, (3, *WIDTHS[:-1])
        self.entries = nn.ModuleList(nn.Conv2d(a, b, 3, 1 + (a > 3), 1) for a, b in zip(inputs, WIDTHS, strict=True))
        self.stages = nn.ModuleList(stage(blocks, width) for width in WIDTHS)

    def forward(self, x: Tensor) -> Tensor:
        for entry, stage in zip(self.entries, self.stages, strict=True):
            x = stage(entry(x))
        return x


def mebibytes(what: str, model: nn.Module, inputs: Tensor) -> Row:
    """Return the peak memory beyond the parameters and their gradients."""

    def passes() -> None:
        output = model(inputs)
        (output if isinstance(output, Tensor) else output.logits).sum().backward()

    passes()
    return Row(f"peak memory, {what}", Spread.exact(peak_bytes(passes) / MIB), "MiB")


def transformers(layers: int) -> Iterator[Row]:
    """Measure a ViT of torchvision and a GPT-2 of transformers, converted to momentum networks."""
    from torchvision.models import VisionTransformer
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=256, n_positions=128, n_embd=128, n_layer=layers, n_head=4, use_cache=False)
    networks = {
        "ViT": (VisionTransformer(32, 4, layers, 4, 128, 512, num_classes=10), batch(SIZE)[0]),
        "GPT-2": (GPT2LMHeadModel(config), torch.zeros(SIZE, 128, dtype=torch.long)),
    }
    for name, (network, inputs) in networks.items():
        for memory in ("stored", "recompute", "reversible"):
            converted = convert(network, "lm", inputs, init=OPTIONS["k"], dt=OPTIONS["dt"], memory=memory).train()
            yield mebibytes(f"{memory}, {name} of {layers} layers", converted, inputs)


def lm_stage(memory: Memory) -> Callable[[int, int], nn.Module]:
    def stage(blocks: int, width: int) -> nn.Module:
        fs = [PreActivation(basic(width, width)) for _ in range(blocks)]
        return Stage(get_scheme("lm"), fs, dt=OPTIONS["dt"], initial_k=OPTIONS["k"], memory=memory)

    return stage


class CheckpointedStage(nn.Module):
    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Residual(width) for _ in range(blocks)))

    def forward(self, x: Tensor) -> Tensor:
        segments = math.isqrt(len(self.blocks))
        last: Tensor = checkpoint_sequential(self.blocks, segments, x, use_reentrant=False)
        return last


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.f = PreActivation(basic(width, width))

    def forward(self, u: Tensor) -> Tensor:
        f: Tensor = self.f(u)
        return u + f


CONTESTANTS: dict[str, Callable[[int, int], nn.Module]] = {
    "stored": lm_stage("stored"),
    "recompute": lm_stage("recompute"),
    "reversible (LM)": lm_stage("reversible"),
    "reversible (RevNet)": coupled_stage,
    "memcnn": memcnn_stage,
    "momentumnet": momentumnet_stage,
    "torch checkpoint": CheckpointedStage,
}


def gradients(depth: int) -> Iterator[Row]:
    """Compare the gradients of each mode with stored ones, and stored ones with double precision."""
    images, labels = batch(SIZE)
    for options in ({"k": -0.9}, OPTIONS, {}):
        torch.manual_seed(0)
        model = create_model(f"preact_resnet{depth}", scheme="lm", **options)
        setting = ", ".join(f"{name} = {value}" for name, value in options.items()) or "the paper's k"
        stored = flat_gradient(model, images, labels)
        by_mode = {mode: flat_gradient(model, images, labels, mode) for mode in ("recompute", "reversible")}
        for mode, values in by_mode.items():
            yield distance(f"gradient, {mode} against stored, depth {depth}, {setting}", values, stored, "≤ 1e-6")
        kept = every_state_kept(model, images, labels)
        what = f"gradient, reversible against the same with every state kept, depth {depth}, {setting}"
        yield distance(what, by_mode["reversible"], kept, "≤ 1e-6")
        exact = flat_gradient(model.double(), images.double(), labels)
        yield distance(f"gradient, stored in float32 against float64, depth {depth}, {setting}", stored, exact)


def flat_gradient(model: nn.Module, images: Tensor, labels: Tensor, memory: Memory = "stored") -> Tensor:
    model = copy.deepcopy(model)
    model.set_memory(memory)
    F.cross_entropy(model(images), labels).backward()
    return torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])


def every_state_kept(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    with patch.object(reversible, "SPARE_BITS", -1.0):  # no bit to spare: each step keeps its states
        return flat_gradient(model, images, labels, "reversible")


def inexactly(step: Variant) -> None:
    with patch.object(reversible, "EXACT", torch.float32):
        step()


def distance(what: str, one: Tensor, other: Tensor, target: str = "") -> Row:
    return Row(what, Spread.exact(float((one - other).norm() / other.norm())), "", target=target)


if __name__ == "__main__":
    measure("memory modes", __doc__, rows, repeats=7)
