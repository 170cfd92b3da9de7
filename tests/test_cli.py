"""The command line as a person meets it: a process, its exit code, one line for a mistake."""

import signal
import subprocess
import sys

import pytest

from stepnet.cli import COMMANDS, main
from stepnet.files import whole_folder


def stepnet(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "stepnet.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_scheme_is_shown():
    done = stepnet("scheme", "euler")
    assert done.returncode == 0 and done.stderr == ""
    assert "u_{n+1} = u_n + dt f(u_n)" in done.stdout


def test_a_mistake_is_one_line_without_a_traceback():
    done = stepnet("scheme", "eular")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("stepnet: unknown scheme 'eular': did you mean 'euler'")
    assert done.stderr.count("\n") == 1


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        main(["schema"])
    assert stopped.value.code == 2
    assert "schema" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_command_leaves_nothing_half_done(tmp_path, monkeypatch, number, code):
    def write_a_folder():
        with whole_folder(tmp_path / "folder"):
            signal.raise_signal(number)

    before = signal.getsignal(number)
    monkeypatch.setitem(COMMANDS, "models", lambda: write_a_folder)
    try:
        found = main(["models"])
    except SystemExit as stop:
        found = stop.code
    assert found == code and list(tmp_path.iterdir()) == []
    assert signal.getsignal(number) == before
