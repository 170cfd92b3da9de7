"""Two processes with half the batch each are one process, where batch norm does not come between."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stepnet.training import Run
from training.test_loop import metrics_of
from training.tiny import read_all

SCRIPT = str(Path(__file__).parent / "launch.py")


def launch(folder, *changes, processes=2, restarts=0):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*torchrun, f"--max-restarts={restarts}", SCRIPT, str(folder), *changes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return Run(folder)


def assert_close_runs(a, b, tolerance):
    mine, theirs = read_all(a.last), read_all(b.last)
    assert mine.keys() == theirs.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], rtol=tolerance, atol=tolerance, msg=name)
    for one, two in zip(metrics_of(a), metrics_of(b), strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=tolerance)
        assert one["test_error"] == pytest.approx(two["test_error"], abs=0.4)


@pytest.mark.slow
@pytest.mark.parametrize("gates", [(), ("gates=1",)], ids=["plain", "stochastic_depth"])
def test_two_processes_equal_one(tmp_path, gates):
    one = launch(tmp_path / "one", *gates, processes=1)
    two = launch(tmp_path / "two", *gates, processes=2)
    assert_close_runs(one, two, 2e-4)


@pytest.mark.slow
def test_a_killed_rank_restarted_by_torchrun_goes_on(tmp_path):
    whole = launch(tmp_path / "whole")
    broken = launch(tmp_path / "broken", "die=3", restarts=2)
    assert (tmp_path / "died").exists()
    mine, theirs = read_all(whole.last), read_all(broken.last)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert metrics_of(whole) == metrics_of(broken)
