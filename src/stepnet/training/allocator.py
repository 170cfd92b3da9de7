"""What the C library does with memory that a step has freed, and the next step asks for again."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's numbers in malloc.h, M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
LARGEST_INT, LARGEST_MMAP_THRESHOLD = 2**31 - 1, 2**25  # it refuses more
SMALL_TENSOR = 2**18  # bytes; glibc would raise this threshold by itself with the sizes that it sees freed
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_memory() -> bool:
    """Let glibc keep what is freed; whether it does.

    By itself it gives the memory of large tensors back to the system, which clears every page before it hands it out
    again; `benchmarks/cpu.py` measures what that costs a step.
    """
    return _set_thresholds({TRIM_THRESHOLD: LARGEST_INT, MMAP_THRESHOLD: LARGEST_MMAP_THRESHOLD})


def give_memory_back() -> bool:
    """Let glibc return every tensor's memory to the system when it is freed; whether it does.

    In a heap that it keeps, tensors that are freed in another order than they came leave gaps, and a process that
    recomputes its activations still grows with depth; `benchmarks/resident.py` measures by how much.
    """
    return _set_thresholds({MMAP_THRESHOLD: SMALL_TENSOR})


def _set_thresholds(thresholds: dict[int, int]) -> bool:
    """Thresholds that were chosen by an environment variable stay."""
    if any(variable in os.environ for variable in VARIABLES):
        return False
    with suppress(OSError, AttributeError):  # no Linux, or another C library
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        return all(mallopt(number, value) for number, value in thresholds.items())
    return False
