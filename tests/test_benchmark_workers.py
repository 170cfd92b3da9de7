"""The worker processes of benchmarks/, which take turns."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from stepnet.timing.harness import interleave

Worker = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "workers.py"))["Worker"]
TELLING = """
import os, sys
print("ready", flush=True)
for number, _ in enumerate(sys.stdin):
    print(float(os.environ["BASE"]) + number + float(sys.argv[1]), flush=True)
"""


def test_workers_take_turns_and_tell_their_seconds() -> None:
    with Worker(TELLING, ["0.5"], {"BASE": "10"}) as one, Worker(TELLING, ["0.25"], {"BASE": "20"}) as other:
        for worker in (one, other):
            worker.wait_until_ready()
        seconds = interleave({"one": one, "other": other}, repeats=2)
    assert seconds == {"one": [11.5, 12.5], "other": [21.25, 22.25]}
    assert one.process.returncode == other.process.returncode == 0


def test_a_worker_that_ends_early_is_told() -> None:
    with Worker("raise SystemExit(3)") as worker, pytest.raises(RuntimeError, match="ended with code 3"):
        worker.wait_until_ready()
