"""Every figure that a command draws can be read: one or two columns wide, with long names, with schemes of one's own.

`STEPNET_SHEET=FOLDER pytest tests/report/test_legibility.py` also writes each figure as PNG, to look at.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from matplotlib.figure import Figure

from report.conftest import trained_on_digits
from report.legibility import flaws
from stepnet.cli import main
from stepnet.commands.figure import DrawFigure
from training.made_runs import run_with_errors

SHEET = os.environ.get("STEPNET_SHEET")
PAGE = Path(__file__).parents[2] / "docs" / "add_a_scheme.md"
OWN_SCHEME = PAGE.read_text().split("```python\n")[1].split("```")[0]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs to draw: of a comparison, with long names, and of one model under several settings."""
    root = tmp_path_factory.mktemp("figures")
    for seed in range(3):
        errors = [90.0 / (n + 1) ** 1.3 + seed / 5 for n in range(12)]
        for n, model in enumerate(("preact_resnet20", "lm_resnet20")):
            run_with_errors(root / "pair", model, seed, [error - n / 4 for error in errors])
    models = [f"{kind}_resnet{depth}" for kind in ("preact", "lm") for depth in (20, 32, 44)]
    for n, model in enumerate(models):
        run_with_errors(root / "six", model, 0, [60.0, 20.0 + n, 10.0 + n / 2])
    for lr in (0.05, 0.1):
        name = f"a_run_with_a_long_name_that_someone_chose_with_care_and_lr_{lr}"
        run_with_errors(root / "long", "lm_resnet20", 0, name=name, scheme=None, data_root=f"/a/long/path/{lr}")
    trained_on_digits(root / "digits")
    trained_on_digits(root / "a_longer_name_of_a_run_on_digits", k=0.2)
    return root


def lines() -> list[str]:
    drawn = [
        "figure networks",
        "figure networks lm_resnet56",
        "figure networks shakeshake26_2x32d lm_revnet38",
        "figure networks preact_resnet20:rk4",
        "figure networks preact_resnet20:nag preact_resnet20:heun",
        "figure k {pair}",
        "figure k {long}",
        "figure curves {pair}",
        "figure curves {six}",
        "figure curves {long}",
        "figure compression",
        "figure compression {pair}",
        "figure compression {six}",
        "figure stability",
        "figure stability rk4",
        "figure stability euler nag ab2",
        "figure modified",
        "figure modified diffusion",
        "figure modified transport",
        "figure modified steps",
        "figure lesion {digits} {other}",
        "figure trajectory {digits}",
        "figure spectrum {digits}",
    ]
    plots = [f"scheme {name} --plot" for name in ("lm", "nag", "x0", "mhc", "multistep")]
    plots += ["read lm_resnet20 --plot", "read preact_resnet20:mhc --plot"]
    networks = ["lm_resnet20", "fractalnet20", "lm_resnext29_8x64d"]
    networks += [f"preact_resnet20:{scheme}" for scheme in ("nag", "ab2", "neumann3")]
    return [
        *(f"{line} --columns {columns} -o" for line in drawn for columns in (1, 2)),
        *plots,
        *(f"inspect {network} --out" for network in networks),
    ]


def test_no_kind_of_figure_is_forgotten() -> None:
    kinds = get_args(get_type_hints(DrawFigure)["name"])
    assert {line.split()[1] for line in lines() if line.startswith("figure ")} == set(kinds)


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("line", lines())
def test_a_figure_can_be_read(line: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exec(compile(OWN_SCHEME, PAGE.name, "exec"), {"__name__": "own"})
    groups = {name: " ".join(map(str, sorted((root / name).iterdir()))) for name in ("pair", "six", "long")}
    words = line.format(**groups, digits=root / "digits", other=root / "a_longer_name_of_a_run_on_digits").split()
    found: dict[str, list[str]] = {}

    def check(figure: Figure, path: Path, **options: object) -> None:
        found[str(path)] = flaws(figure)
        Path(path).touch()
        if SHEET:
            Path(SHEET).mkdir(exist_ok=True)
            figure.canvas.print_figure(Path(SHEET) / (re.sub(r"\W+", "-", line).strip("-") + ".png"), dpi=144)

    monkeypatch.setattr(Figure, "savefig", check)
    assert main([*words, str(tmp_path / "figure.png")]) == 0
    assert list(found.values()) == [[]]
