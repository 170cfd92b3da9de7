"""Nothing is lost: a run killed with SIGKILL at ten random moments ends with the bits of one that was not."""

import subprocess
import sys
from pathlib import Path

import pytest

from stepnet.training import Run
from training.test_loop import assert_same_run

SCRIPT = Path(__file__).parent / "kill_and_resume.py"


@pytest.mark.slow
def test_ten_kills_change_no_bit(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), "10", "20171027"], capture_output=True, text=True, timeout=600
    )
    assert "killed 10 times, last exit 0" in done.stdout, done.stdout + done.stderr
    assert_same_run(Run(tmp_path / "killed"), Run(tmp_path / "whole"))
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {p.name for p in (tmp_path / "whole").iterdir()}
