"""A run that shares its cores says so, once, where its threads wait for each other."""

import torch

from stepnet.training import machine
from stepnet.training.checkpoint import Progress
from stepnet.training.machine import Crowding, seconds_waited
from training.test_display import end_epoch, no_summary_of_a_stub, shown  # noqa: F401  (a fixture)


def test_what_the_system_counts_only_grows():
    before = seconds_waited()
    assert 0 <= before <= seconds_waited()


def test_threads_that_wait_for_cores_are_told_of_once(capsys, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(machine, "seconds_waited", iter([0.0, 1e9]).__next__)
    display = shown(Progress())
    end_epoch(display)
    end_epoch(display)
    assert (
        capsys.readouterr().out.count("2 threads wait for cores that others use: OMP_NUM_THREADS=1 may be faster\n")
        == 1
    )


def test_a_quiet_machine_and_a_single_thread_need_no_word(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(machine, "seconds_waited", lambda: 5.0)
    assert Crowding().warning() == ""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(machine, "seconds_waited", iter([0.0, 1e9]).__next__)
    assert Crowding().warning() == ""
