"""Peak of live memory of a training step against depth, mode by mode.

    python benchmarks/memory_modes.py [--repeats 1]

Pre-activation ResNets under LM with k = -0.9 and dt = 0.1 (a momentum network), and RevNets, batch 8, forward and
backward pass. Counted from torch's allocations: the same in every run, whatever else the machine does. The time over
"stored" is measured at depth 20 with as many repetitions as asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from script import measure

from stepnet import create_model
from stepnet.timing.harness import Row, Spread, compare
from stepnet.timing.memory import peak_bytes
from stepnet.timing.steps import batch, gradient

MIB = 2**20


def rows(repeats: int) -> Iterator[Row]:
    images, _ = batch(8)
    for depth in (20, 56, 110):
        for memory in ("stored", "recompute", "reversible"):
            model = create_model(f"preact_resnet{depth}", scheme="lm", k=-0.9, dt=0.1, memory=memory)
            step = gradient(model, images)
            step()
            yield Row(f"peak memory, {memory}, LM ResNet-{depth}", Spread.exact(peak_bytes(step) / MIB), "MiB")
    for depth in (38, 110):
        for memory in ("stored", "reversible"):
            step = gradient(create_model(f"revnet{depth}", memory=memory), images)
            step()
            yield Row(f"peak memory, {memory}, RevNet-{depth}", Spread.exact(peak_bytes(step) / MIB), "MiB")
    models = {
        m: create_model("preact_resnet20", scheme="lm", k=-0.9, dt=0.1, memory=m) for m in ("recompute", "reversible")
    }
    stored = create_model("preact_resnet20", scheme="lm", k=-0.9, dt=0.1)
    variants = {memory: gradient(model, images) for memory, model in models.items()}
    ratios, null = compare(variants, gradient(stored, images), repeats)
    for memory, ratio in ratios.items():
        yield Row(f"time over stored, {memory}, LM ResNet-20", ratio, null=null, reach="≤ 1.4")


if __name__ == "__main__":
    measure("memory modes", __doc__, rows, repeats=11)
