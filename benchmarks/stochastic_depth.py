"""A training step of ResNet-56 with stochastic depth, p_L = 0.5, over the ungated one; and torchvision's beside it.

    python benchmarks/stochastic_depth.py [--repeats 25]

The gates are those of step 0, 1, 2, …: a dropped block is not computed. torchvision's StochasticDepth computes a block
before it drops it. The multiply-adds that survive, a mean over the same gates, are what skipping could save.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from script import measure
from torch import Tensor, nn

from stepnet import create_model
from stepnet.extras import import_extra
from stepnet.nets import ResidualNetwork, Stage
from stepnet.nets.cost import Flops
from stepnet.timing.harness import Row, Spread, compare
from stepnet.timing.steps import batch, training_step

SURVIVAL = 0.5


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    name = "resnet20" if quick else "resnet56"
    images, labels = batch(16)
    plain, gated = create_model(name), create_model(name, stochastic_depth=SURVIVAL)
    assert isinstance(gated, ResidualNetwork) and gated.stochastic is not None
    peer = torchvision_depth(plain, gated.stochastic.probabilities)
    variants = {"stepnet": gated, "torchvision": peer}
    steps = {library: training_step(model, images, labels) for library, model in variants.items()}
    ratios, control = compare(steps, training_step(plain, images, labels), repeats)
    for library, over in ratios.items():
        what = f"training step, stochastic depth p_L = {SURVIVAL} / plain, {name}, {library}"
        yield Row(what, over, control=control, target="≤ 0.80" if library == "stepnet" else "")
    whole, *parts = (
        forward_flops(gated, images[:1], gates)
        for gates in (
            [1.0] * gated.stochastic.depth,
            *(gated.stochastic.draw(0, step) for step in range(1, repeats + 1)),
        )
    )
    yield Row(f"multiply-adds that survive, {name}", Spread.of([part / whole for part in parts]))


def forward_flops(model: nn.Module, images: Tensor, gates: list[float]) -> int:
    with Flops() as counter:
        model(images, noise=gates)
    return counter.total


def torchvision_depth(model: nn.Module, probabilities: list[float]) -> nn.Module:
    """Return a copy of the network with torchvision's StochasticDepth around each block."""
    depth = import_extra("torchvision.ops").StochasticDepth

    class Dropped(nn.Module):
        def __init__(self, block: nn.Module, survival: float) -> None:
            super().__init__()
            self.block, self.drop = block, depth(1 - survival, "batch")

        def forward(self, u: Tensor, i: int = 0) -> Tensor:
            dropped: Tensor = self.drop(self.block(u, i))
            return dropped

    peer, rest = copy.deepcopy(model), iter(probabilities)
    for stage in peer.modules():
        if isinstance(stage, Stage):
            if stage.transition is not None:
                stage.transition.block = Dropped(stage.transition.block, next(rest))
            stage.blocks = nn.ModuleList(Dropped(block, next(rest)) for block in stage.blocks)
    return peer


if __name__ == "__main__":
    measure("stochastic depth", __doc__, rows, repeats=25)
