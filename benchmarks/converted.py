"""What `convert` costs: networks of timm under LM against themselves unconverted, training step and forward pass.

python benchmarks/converted.py [--repeats 5]
"""

from collections.abc import Iterator

from script import measure

from stepnet.timing.harness import Row
from stepnet.timing.rows import converted_over_original

NAMES = ("timm/resnet18", "timm/resnet50", "timm/vit_tiny_patch16_224")


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    yield from converted_over_original(NAMES[:1] if quick else NAMES, repeats, size=4)


if __name__ == "__main__":
    measure("converted against original", __doc__, rows, repeats=5)
