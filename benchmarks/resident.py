"""Growth of the resident memory of a training process, stored and reversible, by the settings of glibc.

    python benchmarks/resident.py [--repeats 1]

The stage of pairs of `reversible.py` over 4, 16 and 64 steps, each in a process of its own that takes three training
steps; its peak less what it had before them. By itself glibc keeps a heap with gaps; with a small threshold every
tensor is a mapping of its own, given back when it is freed and cleared by the system before it is handed out again.
Time: user and system, of steps of depth 16 in processes that take turns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from cpu import KEEP
from script import measure
from workers import Worker

from stepnet.timing.harness import CONTROL, Row, Spread, interleave, ratio

DEPTHS = (4, 16, 64)
AS_IT_IS, *OTHERS = CHOICES = {
    "glibc as it is": {},
    "keeps memory": KEEP,
    "gives memory back": {"MALLOC_MMAP_THRESHOLD_": str(1 << 18)},
}
WORKER = """
import json, re, sys, time, torch
from pathlib import Path
def status(word):
    return int(re.search(rf"{word}:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
depth, memory, folder = json.loads(sys.argv[1])
sys.path.insert(0, folder)
torch.set_num_threads(1)
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
    for memory in ("stored", "reversible"):
        for choice in CHOICES:
            for depth in DEPTHS[:1] if quick else DEPTHS:
                with worker(depth, memory, choice) as process:
                    peak = process.end()
                yield Row(f"resident memory, {memory}, {choice}, depth {depth}", Spread.exact(peak), "MiB")
    with ExitStack() as stack:
        depth, choice_of = DEPTHS[0 if quick else 1], {**dict(zip(CHOICES, CHOICES, strict=True)), CONTROL: AS_IT_IS}
        workers = {name: stack.enter_context(worker(depth, "reversible", choice)) for name, choice in choice_of.items()}
        for process in workers.values():
            process.wait_until_ready()
        seconds = interleave(workers, 5 * repeats)
    for choice in OTHERS:
        over, control = ratio(seconds, choice, AS_IT_IS), ratio(seconds, CONTROL, AS_IT_IS)
        yield Row(f"reversible training step, {choice} / {AS_IT_IS}", over, control=control)


def worker(depth: int, memory: str, choice: str) -> Worker:
    """Return a process that first prints the MiB by which it grew, and then takes steps."""
    return Worker(WORKER, [json.dumps([depth, memory, str(Path(__file__).parent)])], CHOICES[choice])


if __name__ == "__main__":
    measure("resident memory", __doc__, rows, repeats=1)
