"""The runs are those of the protocol; docs/results.md says what their files say, and its verdicts follow the rule."""

import runpy
import sys
from pathlib import Path

import pytest

from stepnet.training import TrainConfig, comparison
from stepnet.training.paired import PairedDifferences
from training.tiny import tiny_config

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "results"))  # as for a script that stands there
MADE = runpy.run_path(str(ROOT / "results" / "page.py"))
RUN = runpy.run_path(str(ROOT / "results" / "run.py"))
sys.path.pop(0)


def test_the_page_is_what_its_command_makes() -> None:
    assert (ROOT / "docs" / "results.md").read_text() == MADE["page"](), "run python results/page.py"


@pytest.mark.parametrize(
    ("gaps", "effect", "expected"),
    [
        ((-1.0, -1.1, -0.9), None, "holds"),
        ((1.0, 1.1, 0.9), None, "does not hold"),
        ((-0.1, 0.0, 0.1), -0.42, "does not hold"),  # the interval excludes the paper's effect
        ((-1.0, 1.0, 0.0), -0.42, "cannot be told"),
        ((-1.0,), None, "cannot be told"),
    ],
)
def test_verdicts(gaps: tuple[float, ...], effect: float | None, expected: str) -> None:
    assert MADE["verdict"](PairedDifferences(dict(enumerate(gaps))), effect) == expected


@pytest.mark.parametrize("number", ["0", "1", "6"])
def test_the_configs_are_those_of_compare(number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment, asked = RUN["EXPERIMENTS"][number], []
    monkeypatch.setattr(comparison, "train_config", lambda config, watcher: asked.append(config))
    monkeypatch.setattr(comparison, "_summary", lambda model, runs: None)
    base = TrainConfig(experiment.first.model, experiment.data, recipe=experiment.recipe)
    comparison.compare([network.label for network in experiment.networks], base, 2, tmp_path)
    own = list(experiment.configs(tmp_path, 2))
    assert [one.differences(other) for one, other in zip(own, asked, strict=True)] == [[]] * 4


def test_a_run_is_trained_recorded_and_not_trained_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, path = tiny_config(tmp_path / "run", recipe={"epochs": 1}), tmp_path / "recorded.json"
    RUN["train_and_record"](config, path)
    assert RUN["is_done"](tmp_path / "run") and not RUN["is_done"](tmp_path / "other")
    before = path.read_text()
    RUN["train_and_record"](config, path)
    assert path.read_text() == before and f'"model": "{config.model}"' in before
    assert capsys.readouterr().out.count(" %") == 2
