"""The figures of `stepnet figure`, each by its name, from runs, models or schemes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import matplotlib

from stepnet.errors import UserError
from stepnet.report.figures import Picture, shrink_to
from stepnet.report.lesion import Lesion, lesion_study
from stepnet.report.modified_plots import ModifiedExample, plot_modified
from stepnet.report.network_plots import plot_spectrum, plot_trajectory
from stepnet.report.run_plots import plot_coefficients, plot_compression, plot_curves
from stepnet.report.schematic import plot_networks
from stepnet.report.scheme_plots import plot_stability
from stepnet.report.specimens import open_network, specimen
from stepnet.schemes import get_scheme
from stepnet.training.histories import RunHistory

# Figure 1 (a) to (d), and figure 2 (left)
FIGURE_1 = {
    "ResNet": "preact_resnet20",
    "PolyNet": "poly2_resnet20",
    "FractalNet": "fractalnet20",
    "RevNet": "revnet38",
    "LM-ResNet": "lm_resnet20",
}


def networks(subjects: Sequence[str]) -> Picture:
    """Schematics: figures 1 and 2 (left), or of the models and runs named."""
    named = dict(zip(subjects, subjects, strict=True)) or FIGURE_1
    picture = plot_networks({title: open_network(place)[1] for title, place in named.items()})
    shrink_to(picture, matplotlib.rcParams["figure.figsize"][0])
    return picture


def compression(subjects: Sequence[str]) -> Picture:
    """Error against parameters: figure 2 (right), with the runs named beside it."""
    data = RunHistory.read(Path(subjects[0])).config.data if subjects else "cifar10"
    return plot_compression(subjects, data)


def stability(subjects: Sequence[str]) -> Picture:
    """The stability regions of the schemes named; of Euler, Heun, RK4 and lm by default."""
    return plot_stability(*(subjects or ("euler", "heun", "rk4", get_scheme("lm", k=-0.5))))


def modified(subjects: Sequence[str]) -> Picture:
    """The modified equation on one of four examples, the gradient flow by default."""
    if len(subjects) > 1:
        raise UserError(f"figure modified of {' '.join(subjects)}: name one example; without a name it is gradient")
    width, height = matplotlib.rcParams["figure.figsize"]
    with matplotlib.rc_context({"figure.figsize": (width / 2, height)}):  # it has two panels side by side
        return plot_modified(cast(ModifiedExample, subjects[0])) if subjects else plot_modified()


def trajectory(subjects: Sequence[str]) -> Picture:
    """The states of images of five classes."""
    shown = specimen(_one("trajectory", subjects))
    return plot_trajectory(shown.network, *shown.some_of_each())


def spectrum(subjects: Sequence[str]) -> Picture:
    """The eigenvalues of every step's Jacobian at the first test image."""
    shown = specimen(_one("spectrum", subjects), count=1)
    return plot_spectrum(shown.network, shown.images)


def lesions(subjects: Sequence[str], images: int = 1000) -> dict[str, Lesion]:
    """The lesion study of each run, by its title."""
    found: dict[str, Lesion] = {}
    for place in subjects:
        shown = specimen(place, images)
        title = shown.title if shown.title not in found else place
        found[title] = lesion_study(shown.network, shown.images, shown.labels)
    if not found:
        raise UserError("lesion needs one or more runs")
    return found


# The lesion study is a table too: the command draws what `lesions` finds.
FIGURES: dict[str, Callable[[Sequence[str]], Picture]] = {
    "networks": networks,
    "k": plot_coefficients,
    "curves": plot_curves,
    "compression": compression,
    "stability": stability,
    "modified": modified,
    "trajectory": trajectory,
    "spectrum": spectrum,
}


def _one(name: str, subjects: Sequence[str]) -> str:
    if len(subjects) != 1:
        raise UserError(f"figure {name} of {len(subjects)} networks: name one run or model")
    return subjects[0]
