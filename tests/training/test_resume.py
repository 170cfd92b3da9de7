"""Nothing is lost: a run killed with SIGKILL at ten random moments ends with the bits of one that was not."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stepnet.training import Run, train
from stepnet.training.signals import Interrupted
from training.test_loop import StopAt, assert_same_run
from training.tiny import tiny_config

SCRIPT = Path(__file__).parent / "kill_and_resume.py"


@pytest.mark.slow
def test_ten_kills_change_no_bit(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), "10", "20171027"], capture_output=True, text=True, timeout=600
    )
    assert "killed 10 times, last exit 0" in done.stdout, done.stdout + done.stderr
    assert_same_run(Run(tmp_path / "killed"), Run(tmp_path / "whole"))
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {p.name for p in (tmp_path / "whole").iterdir()}


@pytest.mark.slow
def test_a_compiled_run_goes_on_to_the_same_bits(tmp_path):
    """Stopped before the short last batch, whose graph is then the first and only one of the process that goes on."""
    whole, stopped = (
        tiny_config(tmp_path / name, model="tiniest", compile=True, recipe={"epochs": 1, "batch_size": 512})
        for name in ("whole", "stopped")
    )
    finished = train(whole)
    torch._dynamo.reset()
    with pytest.raises(Interrupted):
        train(stopped, watcher=StopAt(0, 2))
    torch._dynamo.reset()  # as in a new process
    assert_same_run(train(stopped), finished)
