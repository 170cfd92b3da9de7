"""`stepnet bench`: one table, one file, one line for a mistake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepnet import timing
from stepnet.cli import main
from stepnet.timing.harness import Row, Spread


def test_the_quick_set_is_printed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one_row(repeats: int) -> Iterator[Row]:
        yield Row("LM / plain", Spread.of([1.0] * repeats), control=Spread.exact(1.0), target="≤ 1.05")

    monkeypatch.setattr(timing, "quick", one_row)
    out = tmp_path / "bench.json"
    assert main(["bench", "--repeats", "3", "--out", str(out)]) == 0
    assert "LM / plain" in capsys.readouterr().out
    assert json.loads(out.read_text())["stepnet bench"]["rows"][0]["target"] == "≤ 1.05"


def test_named_networks_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = []

    def side_by_side(names: list[str], repeats: int) -> list[Row]:
        asked.append((names, repeats))
        return [Row("b / a", Spread.exact(1.25))]

    monkeypatch.setattr(timing, "side_by_side", side_by_side)
    assert main(["bench", "a", "b", "--repeats", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["value"]["median"] == 1.25
    assert asked == [(["a", "b"], 4)]


def test_where_the_time_goes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(timing, "time_shares", lambda name: [Row(f"{name}: convolution", Spread.exact(70.0), "%")])
    assert main(["bench", "--profile", "resnet20"]) == 0
    assert "resnet20: convolution" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--repeats", "0"], "--repeats 0: expected 1 or more"),
        (["--profile", "resnet21"], "did you mean"),
        (["resnet20"], "name two or more networks"),
        (["--profile", "gpt2x16"], "gpt2x16 takes text, and bench times networks of images"),
        (["gpt2x16", "gpt4x16"], "gpt2x16 takes text, and bench times networks of images"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err
