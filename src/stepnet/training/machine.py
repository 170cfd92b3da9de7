"""Properties of the machine: glibc's memory, busy cores, devices, lower precision, torch.compile."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import torch
from torch import nn

from stepnet.errors import UserError, first_line
from stepnet.nets import compiled

# --- keeping freed memory for the next step

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's numbers in malloc.h, M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
LARGEST_INT, LARGEST_MMAP_THRESHOLD = 2**31 - 1, 2**25  # the largest values that it accepts
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_memory() -> bool:
    """Make glibc keep freed memory; return whether it does.

    By default it returns the memory of large tensors to the system, which clears every page before it is used again;
    `benchmarks/cpu.py` measures the cost for a step. Thresholds set by an environment variable are not changed.
    """
    if any(variable in os.environ for variable in VARIABLES):
        return False
    with suppress(OSError, AttributeError):  # no Linux, or another C library
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        return bool(mallopt(TRIM_THRESHOLD, LARGEST_INT)) and bool(mallopt(MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD))
    return False


# --- cores used by other processes
# Threads wait for each other at the end of every operation. If another process uses a core, all threads wait for the
# one on that core: two threads on two busy cores were measured to be seven times slower than on idle ones. Linux counts
# how long each thread was ready to run but did not run.

CROWDED = 0.25  # share of the time, summed over threads


def seconds_waited() -> float:
    """Return the seconds that threads of this process were ready to run but did not; 0 if the system does not count."""
    waited = 0
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError, IndexError, ValueError):  # a thread may just have ended
                waited += int((task / "schedstat").read_text().split()[1])
    return waited / 1e9


class Crowding:
    """The time that threads have waited for cores since the run began."""

    def __init__(self) -> None:
        self.began, self.waited = time.monotonic(), seconds_waited()

    def warning(self) -> str:
        """Return a warning if several threads wait for cores, else an empty string."""
        threads = torch.get_num_threads()
        share = (seconds_waited() - self.waited) / max(time.monotonic() - self.began, 1e-9)
        if threads == 1 or share < CROWDED:
            return ""
        return f"  {threads} threads wait for cores that others use: OMP_NUM_THREADS=1 may be faster"


# --- devices


def default_device() -> str:
    """Return the kind of GPU that torch can use here, or the CPU."""
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def check_without_float64(network: nn.Module) -> None:
    """Raise if the network needs float64, which Apple's GPUs do not have."""
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    wide = next((name for name, tensor in tensors.items() if tensor.dtype == torch.float64), None)
    if wide is not None:
        raise UserError(f"{wide!r} is in float64, which Apple's GPUs do not have: use --device cpu, or float32")
    modes = [getattr(module, "memory_in_use", None) for module in network.modules()]
    if "reversible" in modes:
        raise UserError("memory 'reversible' undoes sums in float64, which Apple's GPUs do not have: use 'recompute'")


# --- lower precision, tested in a child process, which may crash

_TRIAL = """
import torch
with torch.autocast("cpu", torch.bfloat16):
    conv = torch.nn.Conv2d(16, 16, 3, padding=1).to(memory_format=torch.channels_last)
    conv(torch.randn(2, 16, 8, 8).to(memory_format=torch.channels_last)).float().sum().backward()
"""


def check_precision(precision: str) -> None:
    """Raise for a precision that this machine does not support."""
    if precision == "fp16" and not torch.cuda.is_available():
        raise UserError("precision fp16 needs a GPU, and there is none: use --precision fp32")
    if precision == "bf16" and not torch.cuda.is_available() and not _bf16_on_cpu():
        raise UserError("precision bf16: a bfloat16 convolution fails on this CPU; use --precision fp32")


@cache
def _bf16_on_cpu() -> bool:
    # On some CPUs it is an illegal instruction, which ends the process without a Python exception.
    return subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True).returncode == 0


# --- torch.compile, tested before the first step, with eager mode as fallback
# A compiler that was killed leaves a truncated library in torch's cache, which breaks every later compiled run.

Trial = Callable[[nn.Module], None]  # a forward and backward pass that leaves the network unchanged


def compiled_or_eager(network: nn.Module, trial: Trial, note: Callable[[str], None], cleanup: ExitStack) -> nn.Module:
    """Return the compiled network; on failure, compiled with a fresh cache that `cleanup` removes; else the network."""
    from torch._inductor.utils import fresh_inductor_cache

    note("compiling, which takes a while")
    for failed, then in (("failed", "again with a fresh cache"), ("failed again", "training without it")):
        _forget(network)
        try:
            model = compiled(network)
            trial(model)
            return model
        except Exception as error:  # a compiler may raise anything; dynamo's errors have a cause
            reason = first_line(getattr(error, "inner_exception", error))[:120]
            note(f"compiling {failed} ({reason}): {then}")
        if failed == "failed":
            cleanup.enter_context(fresh_inductor_cache())
    _forget(network)
    return network


def _forget(network: nn.Module) -> None:
    """Discard compiled code, including that of blocks that were compiled in place."""
    torch._dynamo.reset()
    for module in network.modules():
        module._compiled_call_impl = None
