"""Resident memory, as `ps` shows it: what a training process grows by, stored and reversible, by what glibc does.

    python benchmarks/resident.py [--repeats 1]

The stage of pairs of `reversible.py` over 4, 16 and 64 steps, each in a process of its own that takes three training
steps; its peak less what it had before them. `stepnet train` lets glibc keep freed memory where activations are stored,
and give it back where they are not. Time: user and system, of steps of depth 16 in processes that take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from script import measure

from stepnet.timing.harness import TWIN, Row, Spread, interleave, ratio
from stepnet.timing.workers import Worker
from stepnet.training.allocator import VARIABLES

DEPTHS = (4, 16, 64)
CHOICES = {"glibc as it is": "", "keeps memory": "keep_memory", "gives memory back": "give_memory_back"}
WORKER = """
import json, re, sys, time, torch
from pathlib import Path
from stepnet.training import allocator
def status(word):
    return int(re.search(rf"{word}:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
depth, memory, choice, folder = json.loads(sys.argv[1])
sys.path.insert(0, folder)
torch.set_num_threads(1)
if choice:
    assert getattr(allocator, choice)()
from reversible import coupled_stage, gradient
before = status("VmRSS")
step = gradient(coupled_stage(depth, memory=memory))
step(), step()
print(status("VmHWM") - before, flush=True)
for _ in sys.stdin:
    start = time.process_time()
    step()
    print(time.process_time() - start, flush=True)
"""


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    depths = DEPTHS[:1] if quick else DEPTHS
    for memory in ("stored", "reversible"):
        for told, choice in CHOICES.items():
            for depth in depths:
                words = [sys.executable, "-c", WORKER, given(depth, memory, choice)]
                done = subprocess.run(
                    words, check=True, env=environment(), stdin=subprocess.DEVNULL, capture_output=True
                )
                what = f"resident memory, {memory}, {told}, depth {depth}"
                yield Row(what, Spread.exact(float(done.stdout)), "MiB")
    with ExitStack() as stack:
        choices = {**CHOICES, TWIN: ""}
        workers = {
            told: stack.enter_context(Worker(WORKER, [given(DEPTHS[0 if quick else 1], "reversible", choice)]))
            for told, choice in choices.items()
        }
        for worker in workers.values():
            worker.wait_until_ready()
        seconds = interleave(workers, 5 * repeats)
    first, *others = CHOICES
    null = ratio(seconds, TWIN, first)
    for told in others:
        yield Row(f"reversible training step, {told} / {first}", ratio(seconds, told, first), null=null)


def given(depth: int, memory: str, choice: str) -> str:
    return json.dumps([depth, memory, choice, str(Path(__file__).parent)])


def environment() -> dict[str, str]:
    """Without thresholds of somebody else's choice."""
    return {name: value for name, value in os.environ.items() if name not in VARIABLES}


if __name__ == "__main__":
    measure("resident memory", __doc__, rows, repeats=1)
