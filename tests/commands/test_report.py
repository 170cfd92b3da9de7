"""`stepnet report` from the command line."""

import subprocess
import sys
from pathlib import Path

import pytest

from stepnet.cli import main
from stepnet.training import NetworkRuns, RunHistory, train
from stepnet.training.config import NetworkRecord, TrainConfig
from stepnet.training.run import Run
from training.made_runs import write_run
from training.tiny import tiny_config

__all__ = ["write_run"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    TrainConfig("preact_resnet20").write(folder / "config.yaml")
    Run(folder).record_environment()
    return folder


def test_it_writes_the_page(run, tmp_path, capsys) -> None:
    assert main(["report", str(run), "-o", str(tmp_path / "page.html")]) == 0
    assert "wrote" in capsys.readouterr().out
    assert "is incomplete: 0 of" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("folder", ["missing", "."])
def test_a_folder_that_is_no_run_is_one_line(folder, run, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", folder, "-o", "page.html"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not Path("page.html").exists()


def test_a_report_builds_no_network_and_needs_no_torch(tmp_path, write_run):
    """What the network costs stands in the run's config, since it began."""
    record = NetworkRecord(parameters=123_456, multiply_adds=7_000_000, steps=9, own_steps=6, scheme="lm")
    folder = write_run(network=record)
    (folder / "model.safetensors").unlink()
    script = f"""
import sys
from stepnet.cli import main
code = main(["report", {str(folder)!r}, "-o", {str(tmp_path / "page.html")!r}])
raise SystemExit(code or 9 * ("torch" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "page.html").read_text()
    assert "123,456" in text and ">7.00 M<" in text and ">lm<" in text


def test_a_run_writes_what_its_network_costs_when_it_starts(tmp_path):
    def cost(folder):
        return NetworkRuns("tiny", (RunHistory.read(folder),)).cost

    run = train(tiny_config(tmp_path / "a", recipe={"epochs": 1, "batch_size": 1497}))
    written = run.config.network
    config = run.config_file.read_text()
    run.config_file.write_text(config[: config.index("network:")])  # a run made before
    counted = cost(run.folder)
    assert run.config.network is None and counted.parameters == written.parameters
    assert (counted.multiply_adds, counted.steps) == (written.multiply_adds, written.steps) != (0, 0)
    assert written.scheme == "lm"
