"""Time of a training step of resnet56 with stochastic depth, against what its surviving blocks cost.

    python benchmarks/stochastic_depth.py [--out results/stochastic_depth.json]

Four kinds of step alternate: ungated; ungated with a clock on each block (forward and backward); gated, with the gates
of step 0, 1, 2, …; and torchvision's StochasticDepth around each block, which computes a block before it drops it. The
surviving blocks' cost at a step is the ungated step beside it, less the median share of each block that was dropped.
The ratio to it holds what skipping itself costs: gates, zero gradients, weight decay and momentum of dropped blocks.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from stepnet import create_model
from stepnet.extras import import_extra
from stepnet.nets import ResidualNetwork, Stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet56")
    parser.add_argument("--survival", type=float, default=0.5, help="p_L")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=30, help="steps of each kind")
    parser.add_argument("--out", type=Path, help="write what was measured to this JSON file")
    options = parser.parse_args()

    busy = os.getloadavg()[0]  # what else the machine is doing
    torch.manual_seed(0)
    plain = create_model(options.model)
    assert isinstance(plain, ResidualNetwork)
    gated = create_model(options.model, stochastic_depth=options.survival)
    assert isinstance(gated, ResidualNetwork) and gated.stochastic is not None
    clocked, clock = copy.deepcopy(plain), BlockClock()
    clock.watch(blocks(clocked))
    draws = [gated.stochastic.draw(0, step) for step in range(options.repeats + 1)]
    images, labels = torch.randn(options.batch, 3, 32, 32), torch.randint(10, (options.batch,))
    steps = {
        "ungated": training_step(plain, images, labels),
        "clocked": training_step(clocked, images, labels),
        "gated": training_step(gated, images, labels),
        "torchvision": training_step(torchvision_depth(plain, gated.stochastic.probabilities), images, labels),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    shares: list[list[float]] = []
    for repeat in range(options.repeats + 1):
        clock.reset()
        taken = {name: step(draws[repeat] if name == "gated" else None) for name, step in steps.items()}
        if repeat:  # the first is for warming up
            shares.append([value / taken["clocked"] for value in clock.seconds])
            for name, value in taken.items():
                seconds[name].append(value)

    medians = {name: statistics.median(values) for name, values in seconds.items()}
    share = [statistics.median(column) for column in zip(*shares, strict=True)]
    surviving = [  # against the ungated step beside it, since the machine's pace drifts
        taken * (1 - sum(part for part, gate in zip(share, gates, strict=True) if gate == 0))
        for taken, gates in zip(seconds["ungated"], draws[1:], strict=True)
    ]
    ratios = {
        "gated / surviving blocks": statistics.median(
            taken / cost for taken, cost in zip(seconds["gated"], surviving, strict=True)
        ),
        "gated / ungated": statistics.mean(seconds["gated"]) / statistics.mean(seconds["ungated"]),
        "torchvision / ungated": statistics.median(
            taken / cost for taken, cost in zip(seconds["torchvision"], seconds["ungated"], strict=True)
        ),
        "blocks' share of a step": sum(share),
    }
    title = f"{options.model}, p_L = {options.survival}, batch {options.batch}"
    table = Table("step", "ms, median", "lowest", "highest", title=title)
    for name, values in (*seconds.items(), ("surviving blocks", surviving)):
        table.add_row(
            name, *(f"{1000 * value:,.1f}" for value in (statistics.median(values), min(values), max(values)))
        )
    table.add_section()
    for name, ratio in ratios.items():
        table.add_row(name, f"{ratio:.3f}")
    Console().print(table)
    if options.out:
        record = {
            "command": " ".join(["python", *sys.argv]),
            "model": options.model,
            "survival": options.survival,
            "batch": options.batch,
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "load_average_before": busy,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "seconds": seconds,
            "block_shares": share,
            "surviving": surviving,
            "median": medians,
            "ratios": ratios,
        }
        options.out.write_text(json.dumps(record, indent=2) + "\n")


def training_step(model: nn.Module, images: Tensor, labels: Tensor) -> Callable[[list[float] | None], float]:
    """One step of SGD with momentum and weight decay, which returns its seconds."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def step(gates: list[float] | None) -> float:
        start = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images, noise=gates), labels).backward()
        optimizer.step()
        return time.perf_counter() - start

    return step


def blocks(model: nn.Module) -> list[nn.Module]:
    """The block of each step of the network."""
    return [block for stage in model.modules() if isinstance(stage, Stage) for block in stage.steps]


class BlockClock:
    """The seconds that each block takes, forward and backward."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def reset(self) -> None:
        self.seconds = [0.0] * len(self.seconds)

    def watch(self, watched: list[nn.Module]) -> None:
        self.seconds = [0.0] * len(watched)
        for index, block in enumerate(watched):

            def start(*_: Any, index: int = index) -> None:
                self.seconds[index] -= time.perf_counter()

            def stop(*_: Any, index: int = index) -> None:
                self.seconds[index] += time.perf_counter()

            block.register_forward_pre_hook(start)
            block.register_forward_hook(stop)
            block.register_full_backward_pre_hook(start)
            block.register_full_backward_hook(stop)


def torchvision_depth(model: nn.Module, probabilities: list[float]) -> nn.Module:
    """A copy of the network with torchvision's StochasticDepth around each block."""
    depth = import_extra("torchvision.ops").StochasticDepth

    class Dropped(nn.Module):
        def __init__(self, block: nn.Module, survival: float) -> None:
            super().__init__()
            self.block, self.drop = block, depth(1 - survival, "batch")

        def forward(self, u: Tensor, i: int = 0) -> Tensor:
            return self.drop(self.block(u, i))

    peer, rest = copy.deepcopy(model), iter(probabilities)
    for stage in peer.modules():
        if isinstance(stage, Stage):
            if stage.transition is not None:
                stage.transition.block = Dropped(stage.transition.block, next(rest))
            stage.blocks = nn.ModuleList(Dropped(block, next(rest)) for block in stage.blocks)
    return peer


if __name__ == "__main__":
    main()
