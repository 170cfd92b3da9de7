"""glibc keeps its memory or gives it back, where there is glibc and nobody has said otherwise."""

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Callable

import pytest

from stepnet.training import allocator
from stepnet.training.allocator import VARIABLES, give_memory_back, keep_memory

BOTH = pytest.mark.parametrize("choose", [keep_memory, give_memory_back])
# Tensors of 1 MiB, every second one freed: a heap keeps the gaps.
GAPS = """
import re, sys, torch
from pathlib import Path
from stepnet.training import allocator
def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
assert getattr(allocator, sys.argv[1])()
before = resident()
tensors = [torch.ones(2**18) for _ in range(200)]
del tensors[::2]
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_gaps_between_tensors_stay_with_the_process_or_go():
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}

    def resident(choose: Callable[[], bool]) -> float:
        words = [sys.executable, "-c", GAPS, choose.__name__]
        return float(subprocess.run(words, check=True, env=environment, capture_output=True, text=True).stdout)

    assert resident(keep_memory) == pytest.approx(200, abs=20)  # MiB
    assert resident(give_memory_back) == pytest.approx(100, abs=20)


@BOTH
def test_what_the_environment_says_stays(monkeypatch, choose):
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: pytest.fail("thresholds were chosen"))
    for variable in VARIABLES:
        with monkeypatch.context() as changed:
            changed.setenv(variable, "1")
            assert choose() is False


@BOTH
@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_another_c_library_is_left_alone(monkeypatch, choose, error):
    def refuse(name):
        raise error(name)

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    assert choose() is False
