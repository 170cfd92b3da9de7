"""`stepnet report` from the command line."""

from pathlib import Path

import pytest

from stepnet.cli import main
from stepnet.training.config import TrainConfig
from stepnet.training.run import Run


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
