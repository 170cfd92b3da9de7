"""`stepnet table`."""

import json

import pytest

from stepnet.cli import main
from stepnet.report import paper


def lines(capsys, *argv: str) -> list[str]:
    assert main(["table", *argv]) == 0
    return capsys.readouterr().out.splitlines()


def test_schemes_come_from_the_registry(capsys) -> None:
    rows = lines(capsys, "schemes")
    resnet = next(row for row in rows if row.startswith("ResNet"))
    assert "u' = f" in resnet and "euler" in resnet and "Forward Euler" in resnet
    assert any(row.startswith("LM-ResNet") and "(1 + k) u' = f" in row for row in rows)


@pytest.mark.parametrize("name", ["cifar", "imagenet", "stochastic"])
def test_every_row_is_printed(capsys, name: str) -> None:
    printed = lines(capsys, name, "--results", "nowhere")
    rows = getattr(paper, name.upper())
    for row, line in zip(rows, printed[2 : 2 + len(rows)], strict=True):  # below it only notes
        error = f"{row.error:.2f}" if row.top5 is None else f"{row.error:.1f} / {row.top5:.1f}"
        assert line.startswith(row.model) and row.name in line and f" {error} " in line
        assert name != "stochastic" or row.recipe in line.split()
    assert "measured: no run in nowhere" in printed


def test_counts_that_are_not_the_papers_are_marked(capsys) -> None:
    printed = lines(capsys, "cifar", "--results", "nowhere")
    counted = {row.name: line for row, line in zip(paper.CIFAR, printed[2:], strict=False)}
    assert "1,726,388!" in counted["preact_resnet164"]  # 2.55M in the paper: docs/errata.md
    assert " 269,722 " in counted["resnet20"] and "34,426,698*" in counted["resnext29_8x64d"]


@pytest.mark.parametrize("name", ["schemes", "imagenet"])
def test_json_has_every_row(capsys, name: str) -> None:
    rows = json.loads("".join(lines(capsys, name, "--json", "--results", "nowhere")))
    if name == "schemes":
        assert any(row["scheme"] == "euler" and row["the_paper_says"] == "Forward Euler scheme" for row in rows)
        assert next(row["order"] for row in rows if row["scheme"] == "euler") == 1  # a number as a number
    else:
        assert [row["error"] for row in rows] == [row.error for row in paper.IMAGENET]
        assert all(row["counted"] > 10**7 and row["measured"] is None for row in rows)


def test_measured_errors_stand_beside_the_papers(capsys, tmp_path) -> None:
    run = {"model": "lm_resnet56", "data": "cifar10", "recipe": "stochastic_depth_56", "scheme": None, "seed": 0}
    run["test_error"] = 5.01
    (tmp_path / "runs.json").write_text(json.dumps({"runs": [run]}))
    rows = lines(capsys, "stochastic", "--results", str(tmp_path))
    assert [row.split()[:2] for row in rows if "5.01" in row] == [["LM-ResNet", "56,"]]
    assert "5.14" in next(row for row in rows if "5.01" in row)


@pytest.mark.parametrize("name", ["schemes", "cifar"])
def test_a_table_for_a_paper(name, capsys) -> None:
    assert main(["table", name, "--latex"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(r"\begin{tabular}") and lines[-1] == r"\end{tabular}"
    columns = len(lines[1].split("{")[2]) - 1
    assert {line.replace(r"\&", "").count("&") for line in lines if line.endswith(r"\\")} == {columns - 1}


def test_measured_results_are_shown_wherever_it_is_called(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = json.loads("".join(lines(capsys, "cifar", "--json")))
    row = next(row for row in rows if row["name"] == "lm_resnet20" and row["dataset"] == "cifar10")
    assert row["measured"]["configuration"] == "cifar10" and isinstance(row["measured"]["error"], float)
    assert row["params"] == 270_000
