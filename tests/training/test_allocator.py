"""glibc is told to keep its memory, where there is glibc and nobody has said otherwise."""

import ctypes
import os
import platform
import subprocess
import sys

import pytest

from stepnet.training import machine
from stepnet.training.machine import VARIABLES, keep_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_glibc_takes_the_thresholds():
    code = "import sys; from stepnet.training.machine import keep_memory; sys.exit(not keep_memory())"
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def test_what_the_environment_says_stays(monkeypatch):
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: pytest.fail("thresholds were chosen"))
    for variable in VARIABLES:
        with monkeypatch.context() as changed:
            changed.setenv(variable, "1")
            assert keep_memory() is False


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_another_c_library_is_left_alone(monkeypatch, error):
    def refuse(name):
        raise error(name)

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    assert keep_memory() is False
