"""The cost of LM: a training step against the same blocks under Euler, eager, and the memory of its activations.

The last rows show the limit: the cost of LM's arithmetic with precomputed values of f.

python benchmarks/lm_step.py [--repeats 15]
"""

from collections.abc import Iterator

from arithmetic import arithmetic_alone, halving
from script import measure

from stepnet.nets import create_model
from stepnet.timing.harness import Row
from stepnet.timing.rows import lm_over_plain, saved_by_lm
from stepnet.timing.steps import batch, training_step

DEPTHS, SIZE = (20, 56, 110), 16


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    depths = DEPTHS[:1] if quick else DEPTHS
    yield from saved_by_lm(depths)
    yield from lm_over_plain(depths, repeats, SIZE)
    for depth in depths:
        step = training_step(create_model(f"resnet{depth}"), *batch(SIZE))
        stages = halving(SIZE, 16, 32, [(depth - 2) // 6] * 3)
        yield from arithmetic_alone(f"ResNet-{depth}", step, stages, repeats)


if __name__ == "__main__":
    measure("LM against plain", __doc__, rows, repeats=15)
