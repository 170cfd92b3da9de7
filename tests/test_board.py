"""The board of residual schemes: its page is what its file says, and its verdicts follow the rule of the protocol."""

import runpy
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from scipy import stats

from report.legibility import flaws
from stepnet.training.histories import RunHistory
from training.made_runs import run_with_errors

ROOT = Path(__file__).parent.parent
BOARD = runpy.run_path(str(ROOT / "results" / "board.py"), run_name="board")
TASKS = {task.name: task for task in BOARD["TASKS"]}
SIX = TASKS["characters6"]


def made(**figures):
    """Runs of schemes, their figures in the order of the seeds."""
    cost = {"parameters": 100, "revision": "abc", "machine": "one"}
    return [
        {"task": SIX.name, "scheme": scheme, "seed": seed, "figure": figure, **cost}
        for scheme, own in figures.items()
        for seed, figure in enumerate(own)
    ]


def test_the_page_is_what_its_command_makes():
    assert (ROOT / "docs" / "board.md").read_text() == BOARD["page"](), "run python results/board.py"


def test_verdicts_follow_the_rule():
    better, worse = [1.99, 1.985, 1.99, 1.995, 1.992], [2.01, 2.02, 2.015, 2.012, 2.018]
    same, wide = [2.0, 2.001, 1.999, 2.0005, 1.9995], [2.1, 1.9, 2.05, 1.95, 2.0]
    runs = made(euler=[2.0] * 6, better=better, worse=worse, same=same, wide=wide, few=[1.9, 1.91])
    first, *others = BOARD["rows"](SIX, runs)
    found = {row.scheme: row for row in others}
    assert first.scheme == "euler" and others[0].scheme == "few"
    assert {name: row.verdict(SIX.margin) for name, row in found.items()} == {
        "better": "helps",
        "worse": "harms",
        "same": "makes no difference",
        "wide": "inconclusive",
        "few": "too few pairs",
    }
    values = sorted(stats.ttest_1samp([x - 2 for x in own], 0).pvalue for own in (better, worse, same, wide))
    assert found["worse"].corrected == pytest.approx(4 * values[0])  # the smallest of four with enough pairs
    text = "\n".join(BOARD["section"](SIX, runs))
    assert "- `worse` **harms**: +0.0150 ± 0.0051 nats (5 pairs)." in text
    assert "| `euler` | 6 | 2.0000 |" in text and "too few for a verdict" in text


def test_the_summary_gives_the_figures_of_verdicts_and_the_names_of_others():
    better, wide = [1.99, 1.985, 1.99, 1.995, 1.992], [2.1, 1.9, 2.05, 1.95, 2.0]
    first, *others = BOARD["summary"](made(euler=[2.0] * 5, better=better, wide=wide))
    figures = "**helps**: `better` (-0.0096 ± 0.0045 nats); **inconclusive**: `wide`."
    assert first == f"- {SIX.title}, `{SIX.model}`: {figures}"
    assert all(line.endswith(": too few pairs for a verdict.") for line in others)


def test_a_finished_run_is_recorded(tmp_path):
    history = RunHistory.read(run_with_errors(tmp_path, "preact_resnet20", 3, (5, 7.25)))
    found = BOARD["measured"](TASKS["digits"], history)
    assert (found["task"], found["seed"], found["figure"]) == ("digits", 3, 7.25)
    assert found["revision"] and found["scheme"] == "None"


def test_where_euler_takes_more_steps_both_commands_are_shown():
    commands = TASKS["characters6_time"].commands.split("` and `")
    assert [command.split("--schemes ")[1].split()[0] for command in commands] == ["euler", "SCHEMES"]
    assert "--epoch-steps 780" in commands[0] and "--epoch-steps 600" in commands[1]


def test_without_a_pair_nothing_is_claimed():
    assert "**Not measured**" in "\n".join(BOARD["section"](SIX, made(euler=[2.0])))


def test_what_a_step_keeps_is_counted():
    """Heun evaluates f twice, so it keeps nearly twice as much; LM's states are kept by Euler's layer norms too."""
    kept = {scheme: BOARD["kept_bytes"](SIX, scheme) for scheme in ("euler", "lm", "heun")}
    assert kept["lm"] == kept["euler"] and 1.9 < kept["heun"] / kept["euler"] < 2


def test_a_seed_in_the_folder_replaces_what_the_file_has_of_it(tmp_path, monkeypatch):
    """Pairs of two revisions would not be pairs."""
    old = [{**run, "task": task} for task in ("digits", "vit") for run in made(euler=[2.0, 2.1], lm=[1.9, 2.0])]
    written = []
    changed = {"read_runs": lambda: old, "write": lambda runs, costs: written.extend(runs)}
    for name, value in changed.items():
        monkeypatch.setitem(BOARD["record"].__globals__, name, value)
    for seed in (1, 3):
        run_with_errors(tmp_path / "digits", "preact_resnet20", seed, (5, 7.25))
    BOARD["record"](tmp_path)
    new = {(run["task"], run["seed"]) for run in written if run["figure"] == 7.25}
    kept = {(run["task"], run["seed"]) for run in written if run["figure"] != 7.25}
    assert new == {("digits", 1), ("digits", 3)}
    assert kept == {("digits", 0), ("vit", 0), ("vit", 1)}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_picture_of_the_board_can_be_read(task, monkeypatch, tmp_path):
    found = []
    monkeypatch.setitem(BOARD["draw"].__globals__, "DOCS", tmp_path)
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **options: found.extend([figure, *flaws(figure)]))
    BOARD["draw"](task, BOARD["drawn"](BOARD["rows"](task, BOARD["read_runs"]())))
    assert len(found) == 1, found[1:]
