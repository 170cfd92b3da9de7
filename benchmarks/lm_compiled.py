"""The cost of compiled LM: a training step against the same blocks under Euler. Compiling takes minutes.

python benchmarks/lm_compiled.py [--repeats 15]
"""

from collections.abc import Iterator

from lm_step import DEPTHS, SIZE
from script import measure

from stepnet.timing.harness import Row
from stepnet.timing.rows import lm_over_plain


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    yield from lm_over_plain(DEPTHS[:1] if quick else DEPTHS, repeats, SIZE, compiled=True)


if __name__ == "__main__":
    measure("LM against plain, compiled", __doc__, rows, repeats=15)
