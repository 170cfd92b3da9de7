"""What the C library does with memory that a step has freed, and the next step asks for again."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's numbers in malloc.h, M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
LARGEST_INT, LARGEST_MMAP_THRESHOLD = 2**31 - 1, 2**25  # it refuses more
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_memory() -> bool:
    """Let glibc keep what is freed; whether it does.

    By itself it gives the memory of large tensors back to the system, which clears every page before it hands it out
    again; `benchmarks/cpu.py` tells what that costs a step. Who has chosen thresholds by an environment variable keeps
    those.
    """
    if any(variable in os.environ for variable in VARIABLES):
        return False
    with suppress(OSError, AttributeError):  # no Linux, or another C library
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        return bool(mallopt(TRIM_THRESHOLD, LARGEST_INT)) and bool(mallopt(MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD))
    return False
