"""The figures of `stepnet figure` by name, from runs, models or schemes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, cast

import matplotlib
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.escaping import for_plot
from stepnet.report.figures import Picture
from stepnet.report.grouping import short_names
from stepnet.report.modified_plots import ModifiedExample, plot_modified
from stepnet.report.network_plots import plot_spectrum, plot_trajectory
from stepnet.report.opened_networks import open_network, open_with_images
from stepnet.report.run_plots import plot_coefficients, plot_compression, plot_curves
from stepnet.report.schematic import plot_network, plot_networks
from stepnet.report.scheme_plots import plot_stability
from stepnet.schemes import get_scheme
from stepnet.training import RunHistory

Study = TypeVar("Study")

# Figure 1 (a) to (d), and figure 2 (left)
FIGURE_1 = {
    "ResNet": "preact_resnet20",
    "PolyNet": "poly2_resnet20",
    "FractalNet": "fractalnet20",
    "RevNet": "revnet38",
    "LM-ResNet": "lm_resnet20",
}


def networks(subjects: Sequence[str], labels: Sequence[str] | None = None) -> Picture:
    """Draw schematics as in figures 1 and 2 (left): one whole network, or the first stages of several."""
    width = matplotlib.rcParams["figure.figsize"][0]
    titles = short_names(subjects) if labels is None else _checked(labels, subjects)
    named = dict(zip(titles, subjects, strict=True)) or FIGURE_1
    opened = {title: open_network(place)[1] for title, place in named.items()}
    if len(opened) == 1:
        ((title, network),) = opened.items()
        return plot_network(network, title, width)
    return plot_networks(opened, width)


def compression(subjects: Sequence[str], labels: Sequence[str] | None = None) -> Picture:
    """Plot error against parameters as in figure 2 (right), with the named runs."""
    data = RunHistory.read(Path(subjects[0])).config.data if subjects else "cifar10"
    return plot_compression(subjects, data, labels)


def stability(subjects: Sequence[str]) -> Picture:
    """Plot the stability regions of schemes; by default of Euler, Heun, RK4 and lm."""
    return plot_stability(*(subjects or ("euler", "heun", "rk4", get_scheme("lm", k=-0.5))))


def modified(subjects: Sequence[str]) -> Picture:
    """Plot the modified equation on one of four examples, by default the gradient flow."""
    if len(subjects) > 1:
        raise UserError(f"figure modified of {' '.join(subjects)}: name one example; without a name it is gradient")
    return plot_modified(cast(ModifiedExample, subjects[0])) if subjects else plot_modified()


def trajectory(subjects: Sequence[str]) -> Picture:
    """Plot the states of images of five classes."""
    shown = open_with_images(_one("trajectory", subjects))
    images, names = shown.some_of_each()
    return plot_trajectory(shown.network, images, list(map(for_plot, names)))


def spectrum(subjects: Sequence[str]) -> Picture:
    """Plot the eigenvalues of every step's Jacobian at the first test image."""
    why = "the eigenvalues of f are taken at an image"
    shown = open_with_images(_one("spectrum", subjects), count=1, why=why)
    return plot_spectrum(shown.network, shown.images)


def studies(
    study: Callable[[nn.Module, Tensor, Tensor], Study],
    subjects: Sequence[str],
    images: int = 1000,
    labels: Sequence[str] | None = None,
) -> dict[str, Study]:
    """Return `lesion_study` or `exit_study` of each run, by label or title."""
    name = study.__name__.removesuffix("_study")
    if not subjects:
        raise UserError(f"{name} needs one or more runs")
    why = f"figure {name} measures the test error on images"
    shown = [open_with_images(place, images, why=why) for place in subjects]
    titles = [one.title for one in shown]
    if labels is not None:
        titles = _checked(labels, subjects)
    elif len(set(titles)) < len(titles):
        titles = short_names(subjects)
    return {title: study(one.network, one.images, one.labels) for title, one in zip(titles, shown, strict=True)}


# Lesions and exits are tables too: the command draws and prints what `studies` returns.
LABELLED: dict[str, Callable[..., Picture]] = {
    "networks": networks,
    "k": plot_coefficients,
    "curves": plot_curves,
    "compression": compression,
}
FIGURES: dict[str, Callable[[Sequence[str]], Picture]] = {
    **LABELLED,
    "stability": stability,
    "modified": modified,
    "trajectory": trajectory,
    "spectrum": spectrum,
}


def draw(name: str, subjects: Sequence[str], labels: Sequence[str] | None = None) -> Picture:
    """Draw the figure of that name; `labels` replace the names of the networks."""
    if labels is None:
        return FIGURES[name](subjects)
    if name not in LABELLED:
        raise UserError(f"figure {name} has no labels: leave out --labels")
    return LABELLED[name](subjects, labels=labels)


def _one(name: str, subjects: Sequence[str]) -> str:
    if len(subjects) != 1:
        raise UserError(f"figure {name} of {len(subjects)} networks: name one run or model")
    return subjects[0]


def _checked(labels: Sequence[str], subjects: Sequence[str]) -> list[str]:
    if len(set(labels)) != len(subjects):
        raise UserError(f"labels {', '.join(labels)}: expected {len(subjects)} different ones, one for each network")
    return list(labels)
