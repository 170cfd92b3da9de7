"""The runs are those of the protocol; docs/results.md says what their files say, and its verdicts follow the rule."""

import re
import runpy
from pathlib import Path

import pytest

from stepnet.training import TrainConfig, get_recipe
from stepnet.training.comparison import comparison_configs
from stepnet.training.histories import PairedDifferences
from training.tiny import tiny_config

ROOT = Path(__file__).parent.parent
MADE = runpy.run_path(str(ROOT / "results" / "page.py"))
RUN = runpy.run_path(str(ROOT / "results" / "run.py"))
PAIR = ("preact_resnet20", "lm_resnet20")


def test_the_page_is_what_its_command_makes() -> None:
    assert (ROOT / "docs" / "results.md").read_text() == MADE["page"](), "run python results/page.py"


@pytest.mark.parametrize(
    ("gaps", "effect", "expected"),
    [
        ((-1.0, -1.1, -0.9), None, "holds"),
        ((1.0, 1.1, 0.9), None, "does not hold"),
        ((-0.1, 0.0, 0.1), -0.42, "does not hold"),  # the interval excludes the paper's effect
        ((-1.0, 1.0, 0.0), -0.42, "inconclusive"),
        ((-1.0,), None, "inconclusive"),
    ],
)
def test_verdicts(gaps: tuple[float, ...], effect: float | None, expected: str) -> None:
    assert MADE["verdict"](PairedDifferences(dict(enumerate(gaps))), effect) == expected


def test_a_verdict_says_what_bonferroni_leaves_of_it() -> None:
    narrow, wide = (PairedDifferences(dict(enumerate(gaps))) for gaps in ((-1.0, -1.1, -0.9), (-1.0, -0.5, -0.7)))
    text = MADE["_verdict_text"]
    assert text(narrow, None, 1) == "**holds**, -1.00 ± 0.25 (3 pairs)"
    also = ", and also after Bonferroni's correction for the 4 comparisons made here (± 0.51)"
    assert text(narrow, None, 4).endswith(also)
    assert "**holds** by the protocol's rule, -0.73 ± 0.63 (3 pairs), but not after" in text(wide, None, 4)


def test_every_experiment_of_the_protocol_has_a_section() -> None:
    protocol, _, measured = MADE["page"]().partition(MADE["MEASURED"])
    numbers = re.findall(r"^\| (\d\w*) \|", protocol, re.MULTILINE)
    assert sorted(re.findall(r"^### (\w+):", measured, re.MULTILINE)) == sorted(numbers) and len(numbers) == 8


def test_the_readme_says_what_was_measured() -> None:
    readme = (ROOT / "README.md").read_text()
    sections = dict(re.findall(r"^### (\w+):(.*?)(?=^### |\Z)", MADE["page"](), re.MULTILINE | re.DOTALL))
    gap, pairs = re.findall(r"`lm_resnet20`: \*\*.+?\*\*, (.+ ± .+) \((\d+) pairs\)", sections["0"])[0]
    assert f"digits, {pairs} seeds | {gap} points of test error (95 %, paired)" in readme
    for number, told in (
        ("1", "LM-ResNet-20 {lm} %, the same blocks under Euler {plain} %; paired {gap} points (95 %): inconclusive"),
        ("3", "as LM {lm} %, as they are {plain} %; paired {gap} points (95 %): inconclusive"),
    ):
        found = sections[number]
        plain, lm = (re.findall(rf"^\| `{name}` \| \d+ \| (.+?) \|", found, re.MULTILINE)[0] for name in PAIR)
        gap = re.findall(r"`lm_resnet20`: \*\*inconclusive\*\*, (.+) \(3 pairs\)", found)[0]
        assert told.format(lm=lm, plain=plain, gap=gap) in readme
    converts = re.findall(r"(\d+ of \d+) residual", (ROOT / "docs" / "convert_support.md").read_text())[0]
    assert f"that convert exactly | {converts} |" in readme


def test_the_configs_are_those_of_compare(tmp_path: Path) -> None:
    experiment = RUN["EXPERIMENTS"]["1"]
    base = TrainConfig("preact_resnet20", "cifar10", recipe=get_recipe("fast").override({"epochs": 20}))
    expected = [config for _, config in comparison_configs(PAIR, base, 2, tmp_path / "1")]
    assert list(experiment.configs(tmp_path, 2)) == expected and len(expected) == 4


def test_networks_start_as_the_protocol_says(tmp_path: Path) -> None:
    stable, *_ = RUN["EXPERIMENTS"]["2"].configs(tmp_path, 3)
    assert (stable.model, stable.model_kwargs) == ("lm_resnet20", {"k_bound": "stable"})  # LM itself is trained in 1
    assert stable.start_like == "preact_resnet20"
    converted = [Path(config.weights).relative_to(tmp_path) for config in RUN["EXPERIMENTS"]["3"].configs(tmp_path, 2)]
    assert converted == [Path("1") / f"preact_resnet20-seed{seed}" for seed in (0, 0, 1, 1)]


def test_a_run_is_trained_recorded_and_not_trained_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, path = tiny_config(tmp_path / "run", recipe={"epochs": 1}), tmp_path / "recorded.json"
    RUN["train_and_record"](config, path)
    assert RUN["is_done"](tmp_path / "run") and not RUN["is_done"](tmp_path / "other")
    before = path.read_text()
    RUN["train_and_record"](config, path)
    assert path.read_text() == before and f'"model": "{config.model}"' in before
    assert capsys.readouterr().out.count(" %") == 2
