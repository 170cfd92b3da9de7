"""The cost of `convert`: networks of timm converted to LM against the originals, training step and forward pass.

The last rows show the limit: the cost of LM's arithmetic with precomputed values of f.

python benchmarks/converted.py [--repeats 5]
"""

from collections.abc import Iterator

from arithmetic import arithmetic_alone, halving
from script import measure

from stepnet.conversion import load_foreign
from stepnet.timing.harness import Row
from stepnet.timing.rows import converted_over_original
from stepnet.timing.steps import batch, training_step

NAMES, SIZE, PIXELS = ("timm/resnet18", "timm/resnet50", "timm/vit_tiny_patch16_224"), 4, 224
BLOCKS = {  # channels of the first stage, whose states have a quarter of the image's sides; blocks of every stage
    "timm/resnet18": (64, (2, 2, 2, 2)),
    "timm/resnet50": (256, (3, 4, 6, 3)),
}


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    names = NAMES[:1] if quick else NAMES
    yield from converted_over_original(names, repeats, SIZE, PIXELS)
    for name, (width, blocks) in BLOCKS.items():
        if name in names:
            step = training_step(load_foreign(name), *batch(SIZE, PIXELS))
            yield from arithmetic_alone(name, step, halving(SIZE, width, PIXELS // 4, blocks), repeats)


if __name__ == "__main__":
    measure("converted against original", __doc__, rows, repeats=5)
