"""A reversible stage against those of other libraries: peak of live memory, and time over stored activations.

    python benchmarks/reversible.py [--repeats 3]

Every contestant marches the same blocks (bn, relu, conv, twice, 2 x 16 channels at 32 x 32) over 8, 32 and 128 steps
of pairs, batch 16. memcnn and revtorch couple f and g as RevNet does; momentumnet has one f a step, on all 32 channels.
A step back evaluates the blocks once more: beside the times stands that of the forward pass alone. The peak is counted
from torch's allocations; parameters and their gradients are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from script import measure
from torch import Tensor, nn

from stepnet import get_scheme
from stepnet.nets.blocks import PreActivation, basic
from stepnet.nets.march import Memory
from stepnet.nets.stage import Stage
from stepnet.nets.transitions import Coupling
from stepnet.timing.harness import CONTROL, Row, Spread, interleave, ratio
from stepnet.timing.steps import peak_bytes

DEPTHS, SIZE, WIDTH = (8, 32, 128), 16, 16
MIB = 2**20
FORWARD, LEAST = "the forward pass alone", "(made twice: 1 and this is the least)"


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    for depth in DEPTHS[:1] if quick else DEPTHS:
        variants = {name: gradient(make(depth)) for name, make in CONTESTANTS.items()}
        baselines = {name: gradient(make(depth)) for name, make in STORED.items()}
        peaks = {name: peak_bytes(step) / MIB for name, step in (variants | baselines).items()}
        forward = partial(*after_a_layer(STORED["stored"](depth)))
        seconds = interleave({**baselines, CONTROL: baselines["stored"], FORWARD: forward, **variants}, repeats)
        control, share = ratio(seconds, CONTROL, "stored"), ratio(seconds, FORWARD, "stored")
        yield Row(f"time over stored, {FORWARD}, depth {depth}", share, control=control, note=LEAST)
        for name in variants:
            over = ratio(seconds, name, "stored momentumnet" if name == "momentumnet" else "stored")
            target = "≤ 1.4" if name == "stepnet" else ""
            yield Row(f"time over stored, {name}, depth {depth}", over, control=control, target=target)
            yield Row(f"peak memory, {name}, depth {depth}", Spread.exact(peaks[name]), "MiB")
        yield Row(f"peak memory, stored, depth {depth}", Spread.exact(peaks["stored"]), "MiB")


def block(width: int) -> nn.Module:
    return PreActivation(basic(width, width, 1))


class Halves(nn.Module):
    """A chain of steps on the two halves of the channels."""

    def __init__(self, stage: nn.Module) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.stage(tuple(x.chunk(2, 1))), 1)


def coupled_stage(blocks: int, width: int = 2 * WIDTH, memory: Memory = "reversible") -> nn.Module:
    pairs = [Coupling(block(width // 2), block(width // 2)) for _ in range(blocks)]
    return Halves(Stage(get_scheme("coupled"), pairs, memory=memory))


def memcnn_stage(blocks: int, width: int = 2 * WIDTH) -> nn.Module:
    from memcnn import AdditiveCoupling, InvertibleModuleWrapper

    def unit() -> nn.Module:
        pair = AdditiveCoupling(block(width // 2), block(width // 2))
        return InvertibleModuleWrapper(pair, keep_input=False, keep_input_inverse=False)

    return nn.Sequential(*(unit() for _ in range(blocks)))


def revtorch(depth: int) -> nn.Module:
    from revtorch import ReversibleBlock, ReversibleSequence

    pairs = ((block(WIDTH), block(WIDTH)) for _ in range(depth))
    return ReversibleSequence(nn.ModuleList(ReversibleBlock(f, g, split_along_dim=1) for f, g in pairs))


def momentumnet_stage(blocks: int, width: int = 2 * WIDTH, stored: bool = False) -> nn.Module:
    from momentumnet import MomentumNet

    return MomentumNet([block(width) for _ in range(blocks)], gamma=0.9, use_backprop=stored)


CONTESTANTS: dict[str, Callable[[int], nn.Module]] = {
    "stepnet": coupled_stage,
    "memcnn": memcnn_stage,
    "revtorch": revtorch,
    "momentumnet": momentumnet_stage,
}
STORED: dict[str, Callable[[int], nn.Module]] = {
    "stored": lambda depth: coupled_stage(depth, memory="stored"),
    "stored momentumnet": lambda depth: momentumnet_stage(depth, stored=True),
}


def after_a_layer(model: nn.Module) -> tuple[nn.Module, Tensor]:
    """Return the model after a convolution, so that its input needs a gradient as in a network, and images."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 2 * WIDTH, 1), model), torch.randn(SIZE, 3, 32, 32)


def gradient(model: nn.Module) -> Callable[[], None]:
    """Return a forward and backward pass."""
    network, images = after_a_layer(model)

    def step() -> None:
        network.zero_grad()
        network(images).square().mean().backward()

    step()
    return step


if __name__ == "__main__":
    measure("reversible stages", __doc__, rows, repeats=3)
