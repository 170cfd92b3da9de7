"""The machine that a run is on: memory that glibc keeps, cores shared with others, lower precision, torch.compile."""

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

# --- memory that a step has freed, and the next step asks for again

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


# --- cores shared with others
# Threads wait for each other at the end of every operation. Where another process has a core, all threads wait for the
# one that waits for it: two threads on two busy cores were seen to be seven times slower than on idle ones, which no
# thread's own work shows. Linux counts how long each thread was ready to run and did not.

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

    def warning(self) -> str:
        """A line, if threads that wait for each other wait for their cores too; nothing otherwise."""
        threads = torch.get_num_threads()
        share = (seconds_waited() - self.waited) / max(time.monotonic() - self.began, 1e-9)
        if threads == 1 or share < CROWDED:
            return ""
        return f"  {threads} threads wait for cores that others use: OMP_NUM_THREADS=1 may be faster"


# --- devices


def default_device() -> str:
    """A GPU of the kind that torch has here, or the CPU."""
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def check_without_float64(network: nn.Module) -> None:
    """Refuse what needs float64, for a device that has none: Apple's GPUs."""
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    wide = next((name for name, tensor in tensors.items() if tensor.dtype == torch.float64), None)
    if wide is not None:
        raise UserError(f"{wide!r} is in float64, which Apple's GPUs do not have: take --device cpu, or float32")
    modes = [getattr(module, "memory_in_use", None) for module in network.modules()]
    if "reversible" in modes:
        raise UserError("memory 'reversible' undoes sums in float64, which Apple's GPUs do not have: take 'recompute'")


# --- lower precision: tried in a child process, which may die of it

_TRIAL = """
import torch
with torch.autocast("cpu", torch.bfloat16):
    conv = torch.nn.Conv2d(16, 16, 3, padding=1).to(memory_format=torch.channels_last)
    conv(torch.randn(2, 16, 8, 8).to(memory_format=torch.channels_last)).float().sum().backward()
"""


def check_precision(precision: str) -> None:
    """Refuse a precision that this machine cannot compute in."""
    if precision == "fp16" and not torch.cuda.is_available():
        raise UserError("precision fp16 needs a GPU, and there is none: use --precision fp32")
    if precision == "bf16" and not torch.cuda.is_available() and not _bf16_on_cpu():
        raise UserError("precision bf16: a bfloat16 convolution fails on this CPU; use --precision fp32")


@cache
def _bf16_on_cpu() -> bool:
    # Some CPUs die of it with an illegal instruction: no exception reaches Python, so a child has to try.
    return subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True).returncode == 0


# --- torch.compile, tried before the first step, with something to fall back on
# A compiler that was killed leaves a truncated library in torch's cache, on which every later compiled run would die.
# And in the middle of a step an error of the compiler would cost the step; here a trial has nothing to lose.

Trial = Callable[[nn.Module], None]  # a step forward and back, without consequences


def compiled_or_eager(network: nn.Module, trial: Trial, note: Callable[[str], None], held: ExitStack) -> nn.Module:
    """The network compiled; on failure with a fresh cache, kept as long as `held`; on failure again as it was."""
    note("compiling, which takes a while")
    try:
        return _tried(network, trial)
    except Exception as error:  # a compiler fails in many ways, and none of them is the run's
        note(f"compiling failed ({_reason(error)}): again with a fresh cache")
    from torch._inductor.utils import fresh_inductor_cache

    held.enter_context(fresh_inductor_cache())
    try:
        return _tried(network, trial)
    except Exception as error:
        note(f"compiling failed again ({_reason(error)}): training without it")
    _forget(network)
    return network


def _reason(error: Exception) -> str:
    """Return one line; dynamo's own first line names only its backend, so that of the error behind it is taken."""
    return first_line(getattr(error, "inner_exception", error))[:120]


def _tried(network: nn.Module, trial: Trial) -> nn.Module:
    _forget(network)
    model = compiled(network)
    trial(model)
    return model


def _forget(network: nn.Module) -> None:
    """Drop what was compiled, of a network whose blocks were compiled in place too."""
    torch._dynamo.reset()
    for module in network.modules():
        module._compiled_call_impl = None
