"""A reversible stage against those of other libraries: peak of live memory, and time over stored activations.

    python benchmarks/reversible.py [--repeats 5]

Every contestant marches the same blocks (bn, relu, conv, twice, 2 x 16 channels at 32 x 32) over 8, 32 and 128 steps
of pairs, batch 16. memcnn and revtorch couple f and g as RevNet does; momentumnet has one f a step, on all 32 channels.
The peak is counted from torch's allocations; parameters and their gradients are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from script import measure
from torch import Tensor, nn

from stepnet import get_scheme
from stepnet.nets.blocks import PreActivation, basic
from stepnet.nets.stage import Coupling, Memory, Stage
from stepnet.timing.harness import Row, Spread, compare
from stepnet.timing.memory import peak_bytes

DEPTHS, SIZE, WIDTH = (8, 32, 128), 16, 16
MIB = 2**20


def rows(repeats: int) -> Iterator[Row]:
    for depth in DEPTHS:
        variants = {name: gradient(make(depth)) for name, make in CONTESTANTS.items()}
        baselines = {name: gradient(make(depth)) for name, make in STORED.items()}
        peaks = {name: peak_bytes(step) / MIB for name, step in (variants | baselines).items()}
        ratios, null = compare(variants, baselines["stored"], repeats)
        plain, _ = compare({"momentumnet": variants["momentumnet"]}, baselines["stored momentumnet"], repeats)
        ratios["momentumnet"] = plain["momentumnet"]
        for name in variants:
            reach = "≤ 1.4" if name == "stepnet" else ""
            yield Row(f"time over stored, {name}, depth {depth}", ratios[name], null=null, reach=reach)
            yield Row(f"peak memory, {name}, depth {depth}", Spread.exact(peaks[name]), "MiB")
        yield Row(f"peak memory, stored, depth {depth}", Spread.exact(peaks["stored"]), "MiB")


def half() -> nn.Module:
    return PreActivation(basic(WIDTH, WIDTH, 1))


class Halves(nn.Module):
    """A chain of steps on the two halves of the channels."""

    def __init__(self, stage: nn.Module) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.stage(tuple(x.chunk(2, 1))), 1)


def stepnet(depth: int, memory: Memory = "reversible") -> nn.Module:
    pairs = [Coupling(half(), half()) for _ in range(depth)]
    return Halves(Stage(get_scheme("coupled"), pairs, memory=memory))


def memcnn(depth: int) -> nn.Module:
    from memcnn import AdditiveCoupling, InvertibleModuleWrapper

    def unit() -> nn.Module:
        return InvertibleModuleWrapper(AdditiveCoupling(half(), half()), keep_input=False, keep_input_inverse=False)

    return nn.Sequential(*(unit() for _ in range(depth)))


def revtorch(depth: int) -> nn.Module:
    from revtorch import ReversibleBlock, ReversibleSequence

    return ReversibleSequence(nn.ModuleList(ReversibleBlock(half(), half(), split_along_dim=1) for _ in range(depth)))


def whole() -> nn.Module:
    return PreActivation(basic(2 * WIDTH, 2 * WIDTH, 1))


def momentumnet(depth: int, stored: bool = False) -> nn.Module:
    from momentumnet import MomentumNet

    return MomentumNet([whole() for _ in range(depth)], gamma=0.9, use_backprop=stored)


CONTESTANTS: dict[str, Callable[[int], nn.Module]] = {
    "stepnet": stepnet,
    "memcnn": memcnn,
    "revtorch": revtorch,
    "momentumnet": momentumnet,
}
STORED: dict[str, Callable[[int], nn.Module]] = {
    "stored": lambda depth: stepnet(depth, "stored"),
    "stored momentumnet": lambda depth: momentumnet(depth, stored=True),
}


def gradient(model: nn.Module) -> Callable[[], None]:
    """Forward and backward pass after a layer, so that the chain's input carries a gradient as it does in a network."""
    torch.manual_seed(0)
    images = torch.randn(SIZE, 3, 32, 32)
    network = nn.Sequential(nn.Conv2d(3, 2 * WIDTH, 1), model)

    def step() -> None:
        network.zero_grad()
        network(images).square().mean().backward()

    step()
    return step


if __name__ == "__main__":
    measure("reversible stages", __doc__, rows, repeats=5)
