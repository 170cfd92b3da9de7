"""Processor time of commands that need no network, also as a ratio to that of `import torch`.

    python benchmarks/commands.py [--repeats 3]

Each runs as a process of its own, in turn with `python -c "import torch"`, whose second run is the A/A control.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

from script import measure

from stepnet.timing.harness import CONTROL, Row, Spread, interleave, ratio

COMMANDS = {"--help": 0.3, "scheme lm": 2, "data list": 1, "models": 2}  # with their targets in seconds
MODIFIED = """
import contextlib
import stepnet
from stepnet import analysis
for name in stepnet.list_schemes():
    with contextlib.suppress(stepnet.UserError):  # some schemes are consistent with no equation
        analysis.order(name), analysis.modified_equation(name, terms=4)
"""


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    variants: dict[str, Callable[[], object]] = {
        f"stepnet {words}": partial(run, "import sys; from stepnet.cli import main; sys.exit(main())", *words.split())
        for words in COMMANDS
    }
    torch = partial(run, "import torch")
    seconds = interleave(
        {"import torch": torch, CONTROL: torch, **variants}, repeats, children, warmup=0 if quick else 1
    )
    control = ratio(seconds, CONTROL, "import torch")
    for command, target in zip(variants, COMMANDS.values(), strict=True):
        yield Row(f"`{command}` / `import torch`", ratio(seconds, command, "import torch"), control=control)
        yield Row(f"`{command}`", Spread.of(seconds[command]), "s", target=f"≤ {target:g} s")
    yield Row("`import torch`", Spread.of(seconds["import torch"]), "s")
    what = "order and modified equation (terms=4) of every scheme"
    yield Row(
        what, Spread.of(interleave({what: partial(run, MODIFIED)}, 1, children, warmup=0)[what]), "s", target="≤ 5 s"
    )


def run(code: str, *words: str) -> None:
    subprocess.run([sys.executable, "-c", code, *words], check=True, stdout=subprocess.DEVNULL)


def children() -> float:
    """Return the processor time of the child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


if __name__ == "__main__":
    measure("commands", __doc__, rows, repeats=3)
