"""The first signal asks, its echo is nothing new, and a second one stops at once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data.photographs import write_photos
from stepnet.training import Run, saving
from stepnet.training.saving import Interrupted, stop_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_asks_and_its_echo_is_the_same_question(number):
    before, said = signal.getsignal(number), []
    with stop_signals() as asked:
        assert asked.number == 0
        asked.notify = said.append
        signal.raise_signal(number)
        signal.raise_signal(number)  # Ctrl-C reaches a rank from the terminal and from torchrun
        assert asked.number == number
    assert signal.getsignal(number) is before
    again = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}[number]
    assert said == [f"stopping after this step; {again} again to quit now"]


def test_a_signal_while_a_line_is_printed_still_asks():
    def printing(text):
        raise RuntimeError("reentrant call inside <_io.BufferedWriter>")

    with stop_signals() as asked:
        asked.notify = printing
        signal.raise_signal(signal.SIGINT)
        assert asked.number == signal.SIGINT


@pytest.mark.parametrize(("number", "stops"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_second_signal_stops_at_once(monkeypatch, number, stops):
    monkeypatch.setattr(saving, "DEBOUNCE", -1.0)
    with pytest.raises(stops) as stopped, stop_signals() as asked:
        asked.notify = print
        signal.raise_signal(number)
        signal.raise_signal(number)
    assert number == signal.SIGINT or stopped.value.code == 143


def test_the_exit_code_is_that_of_the_signal():
    assert [Interrupted(number, "saved").exit_code for number in (signal.SIGINT, signal.SIGTERM)] == [130, 143]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_the_first_step_a_run_stops_at_once(number):
    with pytest.raises(Interrupted, match="before its first step") as stopped, stop_signals():
        signal.raise_signal(number)
        pytest.fail("it went on")
    assert stopped.value.exit_code == 128 + number


@pytest.mark.slow
def test_a_signal_to_the_whole_group_saves_and_stops(tmp_path):
    """`timeout`, SLURM and systemd signal every process of the group, and a terminal does."""
    write_photos(tmp_path / "photos", each=4)
    out = tmp_path / "run"
    script = Path(__file__).parent / "group_of_processes.py"
    command = [sys.executable, str(script), str(tmp_path / "photos"), str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        until = time.monotonic() + 600  # a busy machine took more than two minutes
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
            if (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").read_text():
                break
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, told = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130, told
    assert told.count("\n") == 1 and "run the same command to resume" in told
    assert (out / "last.safetensors").exists() and Run(out).metrics()


@pytest.mark.slow
@pytest.mark.parametrize("how", [">&-", "> /dev/full", "| head -n 1"])
def test_an_output_that_cannot_be_written_is_no_traceback(tmp_path, how):
    write_photos(tmp_path / "photos")
    script = Path(__file__).parent / "group_of_processes.py"
    command = f"{sys.executable} {script} {tmp_path}/photos {tmp_path}/run --epochs 1 {how}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr and done.stderr.count("\n") <= 1, done.stderr
