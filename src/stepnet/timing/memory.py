"""The live memory of torch's tensors: its peak while something runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.profiler import ProfilerActivity, profile


def peak_bytes(run: Callable[[], object]) -> int:
    """The most bytes that were allocated on the CPU at one time during `run`, beyond what was there before it.

    Each allocation and release that torch's allocator reports is added up, so it is exact, the same in each run, and
    free of what the C library keeps for itself.
    """
    with silent_profiler(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    events = recorded.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    live = peak = 0
    for _, change in changes:
        live += change
        peak = max(peak, live)
    return peak


@contextmanager
def silent_profiler() -> Iterator[None]:
    """Torch's profiler writes lines about itself to the process's stderr, whatever its log level."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
