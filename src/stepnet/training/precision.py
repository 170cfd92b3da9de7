"""Whether this machine can compute in a lower precision: found out in a child process, which may die of it."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import torch

from stepnet.errors import UserError

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
