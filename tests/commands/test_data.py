import json
from pathlib import Path

import pytest
import tyro

from stepnet import data
from stepnet.cli import main
from stepnet.commands.data import DataSets


def run(*arguments: str) -> None:
    tyro.cli(DataSets, args=arguments)()


def test_fetch_takes_a_name_and_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Path]] = []
    monkeypatch.setattr(data, "fetch", lambda name, root: asked.append((name, root)))
    run("fetch", "cifar100", "--root", str(tmp_path))
    monkeypatch.setenv("STEPNET_DATA", str(tmp_path / "set"))
    run("fetch", "cifar10")
    assert asked == [("cifar100", tmp_path), ("cifar10", tmp_path / "set")]


def test_list_tells_what_is_there_and_how_to_get_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("list", "--root", str(tmp_path))
    shown = capsys.readouterr().out
    assert "digits" in shown and "1,497" in shown and "8x8x1" in shown
    assert f"cifar10 is not in {tmp_path}: run `stepnet data fetch cifar10`" in shown
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_fetched_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run("fetch", "mnist")
    assert stopped.value.code == 2


def test_the_list_as_json(tmp_path, capsys) -> None:
    assert main(["data", "list", "--json", "--root", str(tmp_path)]) == 0
    told = {row["data"]: row for row in json.loads(capsys.readouterr().out)}
    assert told["digits"] == {"data": "digits", "training": 1497, "test": 300, "classes": 10, "image": [8, 8, 1]}
    assert "stepnet data fetch cifar10" in told["cifar10"]["missing"]
