"""Every figure that a command draws can be read: one or two columns wide, with long names, with schemes of one's own.

`STEPNET_SHEET=FOLDER pytest tests/report/test_legibility.py` also writes each figure as PNG, to look at.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch
from matplotlib.figure import Figure

from report.conftest import trained_on_digits
from report.legibility import flaws
from stepnet.cli import main
from stepnet.commands.figure import DrawFigure
from stepnet.report.depth_studies import WAYS, CoarseningStudy, plot_coarsening, plot_transfer
from stepnet.report.figures import WIDTHS, Columns, paper_style
from stepnet.report.schematic import picture_of
from stepnet.report.scheme_plots import plot_order
from stepnet.report.sketches import NetworkSketch, sketch_stage
from stepnet.schemes import Entry, get_scheme, list_schemes
from stepnet.training import RULELESS, TaskRecord
from training.made_runs import run_with_errors

RATES = (0.001, 0.002, 0.004, 0.008, 0.016)
PLOTS = {"plot_order": plot_order, "plot_coarsening": plot_coarsening, "plot_transfer": plot_transfer}
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
        "figure exit {digits} {other}",
        "figure trajectory {digits}",
        "figure spectrum {digits}",
        "figure exit {digits}",
    ]
    plots = [f"scheme {name} --plot" for name in ("lm", "nag", "mhc")]
    plots += ["scheme midpoint2 --plot", "scheme coupled --plot", "noise shake_shake --samples 2000 --plot"]
    plots += ["read lm_resnet20 --plot", "read preact_resnet20:mhc --plot"]
    networks = ["lm_resnet20", "fractalnet20", "lm_resnext29_8x64d"]
    networks += [f"preact_resnet20:{scheme}" for scheme in ("nag", "ab2", "neumann3")]
    return [
        *(f"{line} --columns {columns} -o" for line in drawn for columns in (1, 2)),
        *plots,
        *(f"inspect {network} --out" for network in networks),
        "inspect {digits} --figures",
    ]


def test_no_kind_of_figure_is_forgotten() -> None:
    kinds = get_args(get_type_hints(DrawFigure)["name"])
    assert {line.split()[1] for line in lines() if line.startswith("figure ")} == set(kinds)


def checked(figure: Figure, name: str) -> list[str]:
    """Return what is wrong with the figure; write it where someone wants to look at it."""
    found = flaws(figure)
    if SHEET:
        Path(SHEET).mkdir(exist_ok=True)
        figure.canvas.print_figure(Path(SHEET) / (re.sub(r"\W+", "-", name).strip("-") + ".png"), dpi=144)
    return found


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("line", lines())
def test_a_figure_can_be_read(line: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exec(compile(OWN_SCHEME, PAGE.name, "exec"), {"__name__": "own"})
    groups = {name: " ".join(map(str, sorted((root / name).iterdir()))) for name in ("pair", "six", "long")}
    words = line.format(**groups, digits=root / "digits", other=root / "a_longer_name_of_a_run_on_digits").split()
    found: dict[str, list[str]] = {}

    def check(figure: Figure, path: Path, **options: object) -> None:
        found[Path(path).name] = checked(figure, f"{line}{len(found) or ''}")
        Path(path).touch()

    monkeypatch.setattr(Figure, "savefig", check)
    assert main([*words, str(tmp_path / "figure.png")]) == 0
    assert len(found) == (4 if "--figures" in line else 1)
    assert not any(found.values()), found


@pytest.mark.parametrize("name", sorted({*list_schemes()} - {"backward_euler"}))
def test_the_schematic_of_every_scheme_can_be_read(name: str) -> None:
    """A short stage, and a long one after a transition, in one column and in two."""
    scheme = get_scheme(name)
    entry: Entry = "identity" if scheme.splits else "projected"  # u' = f + g has no transitions
    stages = sketch_stage(scheme, 3), sketch_stage(scheme, 9, entry=entry)
    for width in WIDTHS.values():
        picture = picture_of(NetworkSketch(name, stages), width=width)
        assert not checked(picture, f"schematic {name} {width}")


def pictures() -> Iterator[tuple[str, int, Sequence[object]]]:
    for columns in WIDTHS:
        yield "plot_order", columns, ("euler", "rk4", get_scheme("lm", k=-0.5))
        ways = {way: {blocks: 5.0 + blocks / (n + 1) for blocks in (6, 7, 8)} for n, way in enumerate(WAYS)}
        study = CoarseningStudy(TaskRecord().metrics[0], 9, 4.0, ways, torch.nn.Identity())
        yield "plot_coarsening", columns, (study,)
        losses = {depth: {lr: 2.5 + math.log(lr * depth) ** 2 for lr in RATES} for depth in (4, 8, 16, 32)}
        yield "plot_transfer", columns, ({RULELESS: losses, "1/sqrt(L)": losses},)


@pytest.mark.parametrize(("function", "columns", "subjects"), pictures())
def test_a_plot_function_draws_what_can_be_read(function: str, columns: Columns, subjects: Sequence[object]) -> None:
    with paper_style(columns):
        assert not checked(PLOTS[function](*subjects), f"{function} {columns}")
