"""`stepnet compare` as a person meets it."""

import csv
import json
from dataclasses import replace

import pytest
from scipy import stats

from stepnet.cli import main
from stepnet.commands import compare
from stepnet.training import NetworkRuns, Run, RunHistory
from stepnet.training.config import read_label
from training import tiny  # registers the models
from training.made_runs import run_with_errors

assert tiny.RECIPE
SMALL = ["--data", "digits", "--epochs", "1", "--batch-size", "500"]


def test_compare_tells_what_its_docs_tell_you_to_look_at(tmp_path, capsys):
    out, table = tmp_path / "runs", tmp_path / "runs.csv"
    command = ["compare", "tiniest:euler", "tiniest", *SMALL, "--seeds", "2", "--out", str(out)]
    assert main([*command, "--csv", str(table)]) == 0
    text = capsys.readouterr().out
    assert "last epoch" in text and "best epoch" in text and "compare by the last one" in text
    assert "top-5" in text and "mult-adds" in text and "s/epoch" in text
    lines = text.splitlines()
    assert lines.index("tiniest seed 0") < lines.index("tiniest:euler seed 1")  # seeds come first
    assert all(len(line) <= 80 for line in lines if line.startswith(("epoch", "  ", "tiniest minus")))
    assert {path.name for path in out.iterdir()} == {
        f"{model}-seed{seed}" for model in ("tiniest-euler", "tiniest") for seed in (0, 1)
    }
    first, second = Run(out / "tiniest-euler-seed0").config, Run(out / "tiniest-seed0").config
    assert (first.scheme, second.scheme, second.start_like) == ("euler", None, "tiniest:euler")

    assert main([*command, "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert "already finished" in printed.err
    euler, lm = found["models"]
    errors = {
        name: [Run(out / f"{name}-seed{seed}").metrics()[-1]["test_error"] for seed in (0, 1)]
        for name in ("tiniest-euler", "tiniest")
    }
    assert euler["test_error"] == errors["tiniest-euler"] and lm["test_error"] == errors["tiniest"]
    assert lm["multiply_adds"] == euler["multiply_adds"] > 0 and len(lm["top5_error"]) == 2
    gaps = [a - b for a, b in zip(errors["tiniest"], errors["tiniest-euler"], strict=True)]
    assert found["against"] == "tiniest:euler"
    assert list(found["differences"]["tiniest"]["by_seed"].values()) == pytest.approx(gaps)
    rows = list(csv.DictReader(table.open()))
    assert [(row["model"], row["seed"]) for row in rows] == [
        ("tiniest:euler", "0"),
        ("tiniest:euler", "1"),
        ("tiniest", "0"),
        ("tiniest", "1"),
    ]
    assert float(rows[3]["test_error"]) == errors["tiniest"][1]
    mean = sum(gaps) / 2
    assert f"tiniest minus tiniest:euler: {mean:+.2f}" in text


@pytest.mark.parametrize(("lm", "verdict"), [(8, "it is lower"), (12, "it is higher"), (9.9, "no difference is shown")])
def test_the_sign_of_a_difference_is_that_of_the_second_model(tmp_path, capsys, lm, verdict):
    """Plain networks at 10.1, 9.9, 10 %; LM at `lm`, a little scattered. The first epochs were better, at 5 %."""
    errors = {"preact_resnet20": (10.1, 9.9, 10.0), "lm_resnet20": (lm - 0.1, lm + 0.2, lm - 0.1)}
    rows = [
        NetworkRuns(name, tuple(RunHistory.read(run_with_errors(tmp_path, name, s, (5, e))) for s, e in enumerate(own)))
        for name, own in errors.items()
    ]
    compare._print_rows(rows, "made")
    text = capsys.readouterr().out
    assert f"lm_resnet20 minus preact_resnet20: {lm - 10:+.2f} ±" in text
    gaps = [lm - 10.2, lm - 9.7, lm - 10.1]
    assert f"seed by seed {gaps[0]:+.2f} {gaps[1]:+.2f} {gaps[2]:+.2f}" in text
    lower = sum(gap < 0 for gap in gaps)
    assert f"lower with {lower}, higher with {3 - lower}; by the 95 % interval {verdict}" in text
    third = NetworkRuns("third", tuple(replace(run, folder=run.folder / "third") for run in rows[1].runs))
    compare._print_rows([*rows, third], "made")
    p = min(1.0, 2 * stats.ttest_1samp(gaps, 0).pvalue)
    assert f"p = {p:.2g} after Holm's correction for 2 comparisons" in capsys.readouterr().out
    found = compare._figures(rows)
    assert found["models"][0]["test_error"] == [10.1, 9.9, 10.0] and found["models"][0]["best_test_error"] == [5] * 3
    assert found["differences"]["lm_resnet20"]["mean"] == pytest.approx(lm - 10)
    assert list(found["differences"]["lm_resnet20"]["by_seed"].values()) == pytest.approx(gaps)


def test_options_and_schemes_stand_side_by_side(tmp_path, capsys):
    page = tmp_path / "report.html"
    models = ["tiny", "tiny:ab3", "tiny,k_per_channel=True"]
    assert main(["compare", *models, *SMALL, "--out", str(tmp_path), "--report", str(page)]) == 0
    out, error = capsys.readouterr()
    assert "tiny:ab3: its scheme takes 0 of 6 steps, its start the others" in out and "tiny: its scheme" not in out
    assert error.count("ab3 takes 0 of 6 steps, heun 4 and euler 2") == 1
    words = [line.split() for line in out.splitlines()]
    parameters = {line[0]: line[1] for line in words if line and line[0] in models}
    assert parameters.keys() == set(models)
    assert Run(tmp_path / "tiny-ab3-seed0").config.scheme == "ab3"
    assert Run(tmp_path / "tiny-ab3-seed0").config.start_like == "tiny"
    assert Run(tmp_path / "tiny-k_per_channel=True-seed0").config.model_kwargs == {"k_per_channel": True}
    assert "3 runs of 3 networks on digits" in page.read_text()


def test_one_model_under_several_schemes():
    found = compare.under_schemes(["tiny,dt=0.5"], "euler,lm,k=0,k_bound=stable,x0")
    assert found == ["tiny:euler,dt=0.5", "tiny:lm,dt=0.5,k=0,k_bound='stable'", "tiny:x0,dt=0.5"]
    assert [read_label(label).kwargs for label in found][1] == {"dt": 0.5, "k": 0, "k_bound": "stable"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "tiny", "tiny"], "expected one or more different names"),
        (["compare", "tiny:lm", "--schemes", "euler,lm"], "expected one model, without a scheme of its own"),
        (["compare", "--schemes", "euler,lm"], "--schemes with no model: expected one model"),
        (["compare", "tiny", "--schemes", "euler,lm", "--scheme", "x0"], "--scheme x0 and --schemes euler,lm: give"),
        (["compare", "tiny", "--schemes", ""], "--schemes '': expected names with commas"),
        (["compare", "tiny", "--schemes", "euler,,lm"], "--schemes 'euler,,lm': expected names with commas"),
        (["compare", "tiny", "--schemes", "euler,lm:k=0"], "--schemes 'euler,lm:k=0': expected names with commas"),
        (["compare", "tiny", "--seeds", "0"], "seeds = 0: expected 1 or more"),
        (["compare", "tiny", "tiny,dtt=1", "--epochs", "1"], "takes no option 'dtt': did you mean 'dt'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert said in shown.err and shown.err.count("\n") == 1


def test_each_comparison_has_a_folder_of_its_own_and_can_be_replaced(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    common = ["--recipe", "digits", "--epochs", "1", "--batch-size", "512"]
    assert main(["compare", "tiniest", "tiniest:euler", *common]) == 0
    assert main(["compare", "tiniest", "tiniest:heun", *common]) == 0
    folders = sorted(path.name for path in (tmp_path / "runs" / "compare").iterdir())
    assert len(folders) == 2 and "tiniest-euler" in folders[0] and "tiniest-heun" in folders[1]
    capsys.readouterr()
    assert main(["compare", "tiniest", "tiniest:euler", *common, "--out", "mine"]) == 0
    assert main(["compare", "tiniest", "tiniest:euler", *common, "--out", "mine", "--lr", "0.01"]) == 2
    assert "replace it with --overwrite" in capsys.readouterr().err
    assert main(["compare", "tiniest", "tiniest:euler", *common, "--out", "mine", "--lr", "0.01", "--overwrite"]) == 0
