"""What LM costs: a training step against the same blocks under Euler, eager, and what it keeps in memory.

python benchmarks/lm_step.py [--repeats 15]
"""

from collections.abc import Iterator

from script import measure

from stepnet.timing.harness import Row
from stepnet.timing.rows import lm_over_plain, saved_by_lm

DEPTHS, SIZE = (20, 56, 110), 16


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    depths = DEPTHS[:1] if quick else DEPTHS
    yield from saved_by_lm(depths)
    yield from lm_over_plain(depths, repeats, SIZE)


if __name__ == "__main__":
    measure("LM against plain", __doc__, rows, repeats=15)
