"""Whether a run shares its cores with others.

Threads wait for each other at the end of every operation. Where another process has a core, all threads wait for the
one that waits for it: two threads on two busy cores were seen to be seven times slower than on idle ones, which no
thread's own work shows. Linux counts how long each thread was ready to run and did not.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import torch

CROWDED = 0.25  # of the time, over all threads


def seconds_waited() -> float:
    """How long the threads of this process were ready to run while others ran; 0 where the system does not say."""
    waited = 0
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError, IndexError, ValueError):  # a thread may just have ended
                waited += int((task / "schedstat").read_text().split()[1])
    return waited / 1e9


class Crowding:
    """What has been waited for since the run began."""

    def __init__(self) -> None:
        self.began, self.waited = time.monotonic(), seconds_waited()

    def told(self) -> str:
        """A line, if threads that wait for each other wait for their cores too; nothing otherwise."""
        threads = torch.get_num_threads()
        share = (seconds_waited() - self.waited) / max(time.monotonic() - self.began, 1e-9)
        if threads == 1 or share < CROWDED:
            return ""
        return f"  {threads} threads wait for cores that others use: OMP_NUM_THREADS=1 may be faster"
