"""Plots of a network as a dynamical system: trajectories, spectra, weights between blocks, lesions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Annotated, Any

import matplotlib
import numpy as np
import torch
from annotated_types import MinLen
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from torch import Tensor, nn

from stepnet.analysis import stability_region
from stepnet.arguments import checked
from stepnet.conversion import Reading
from stepnet.errors import UserError
from stepnet.nets import training_mode, trajectory
from stepnet.report.dynamics import StepSpectrum, principal_plane, spectra
from stepnet.report.figures import NARROWEST, SMALLEST, Picture, legend_above, panels, rc_styles, shorten_middle
from stepnet.report.lesion import Lesion
from stepnet.report.scheme_plots import STABLE
from stepnet.schemes import Scheme, get_scheme

MARGIN = 0.35  # round the eigenvalues
FLATTEST = 0.925  # height by width of a panel of eigenvalues: a flatter one leaves no room for its label
MOST_WRITTEN = 5  # rows of a matrix whose weights are written into it


@checked
def plot_trajectory(model: nn.Module, images: Tensor, labels: Sequence[object] | None = None) -> Picture:
    """Plot the states of some images in the plane of their first two principal components, stage by stage.

    A dot marks `u_0`, an arrow head the last state; images with the same label have the same colour.
    """
    with training_mode(model, False), torch.no_grad():
        stages = trajectory(model, images)
    names = [str(label) for label in (range(len(images)) if labels is None else labels)]
    if len(names) != len(images):
        raise UserError(f"{len(names)} labels for {len(images)} images: expected one for each")
    styles = dict(zip(dict.fromkeys(names), rc_styles(), strict=False))
    picture = Picture()
    squares = picture.subplots(1, len(stages), squeeze=False)[0]
    for number, (axes, states) in enumerate(zip(squares, stages, strict=True), 1):
        for name, path in zip(names, principal_plane(states).swapaxes(0, 1), strict=True):
            colour = styles[name].get("color", "C0")
            axes.plot(*path.T, color=colour, marker="", linewidth=0.8)
            axes.plot(*path[0], color=colour, marker="o", markersize=2)
            look = {"arrowstyle": "-|>", "color": colour, "mutation_scale": 7, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", path[-1], path[-2], arrowprops=look)
        axes.set(title=f"stage {number}", xlabel="first component", xticks=[], yticks=[])
    squares[0].set_ylabel("second component")
    if labels is not None:
        handles = [Line2D([], [], color=style.get("color", "C0"), label=name) for name, style in styles.items()]
        legend_above(picture, handles, "dot: first state, arrow head: last state, colour: label")
    return picture


@checked
def plot_spectrum(
    model: nn.Module, image: Tensor, precomputed: Annotated[Sequence[StepSpectrum], MinLen(1)] | None = None
) -> Picture:
    """Plot the largest eigenvalues of `dt f'(u_n)` of every step, coloured by depth, on the stability region.

    Where each step has its own k, the regions of the smallest and of the largest one are drawn.
    """
    spectrum = spectra(model, image) if precomputed is None else precomputed
    values = np.concatenate([one.z for one in spectrum])
    regions = _regions(spectrum)
    left = min(-2.2, values.real.min(), *(_left_end(scheme) for scheme, *_ in regions)) - MARGIN
    right = max(0.4, values.real.max()) + MARGIN
    top = max(max(1.5, np.abs(values.imag).max()) + MARGIN, FLATTEST * (right - left) / 2)
    width, height = matplotlib.rcParams["figure.figsize"]
    stages = sorted({one.stage for one in spectrum}) if width > 2 * height else []  # a wide one has a panel for each
    picture = Picture(figsize=(width if stages else min(width, 1.5 * height), height))
    squares = picture.subplots(1, max(1, len(stages)), sharey=True, squeeze=False)[0]
    depth = np.repeat(np.arange(1, len(spectrum) + 1), [len(one.z) for one in spectrum])
    home = np.repeat([one.stage for one in spectrum], [len(one.z) for one in spectrum])
    for number, axes in enumerate(squares):
        for scheme, style, _ in regions:
            region = stability_region(scheme, (left, right, -top, top), n=201)
            radius = np.minimum(region.radius, 10.0)
            axes.contour(region.re, region.im, radius, levels=[STABLE], colors="0.35", linestyles=style)
        shown = home == stages[number] if stages else np.full(len(values), True)
        dots = axes.scatter(
            values.real[shown], values.imag[shown], c=depth[shown], vmin=1, vmax=len(spectrum), s=9, zorder=3
        )
        axes.axhline(0, color="0.8", linewidth=0.6, zorder=0)
        axes.axvline(0, color="0.8", linewidth=0.6, zorder=0)
        axes.set(xlabel=r"Re $\Delta t\,\lambda$", xlim=(left, right), ylim=(-top, top))
        axes.set_aspect("equal")
        if stages:
            axes.set_title(f"stage {stages[number] + 1}")
    squares[0].set_ylabel(r"Im $\Delta t\,\lambda$")
    picture.colorbar(dots, ax=list(squares), label="step, in order of depth", ticks=MaxNLocator(5, integer=True))
    handles = [Line2D([], [], color="0.35", linestyle=style, label=label) for _, style, label in regions]
    legend_above(picture, handles, "stable inside")
    return picture


@checked
def plot_reading(reading: Reading) -> Picture:
    """Plot the weight with which each block's output reaches every later block, a panel for each stage."""
    picture, squares = panels(len(reading.stages), height=1.3)
    largest = max(float(np.nanmax(np.abs(stage.matrix), initial=0)) for stage in reading.stages) or 1.0
    for number, (axes, stage) in enumerate(zip(squares, reading.stages, strict=True), 1):
        matrix = np.where(stage.matrix == 0, np.nan, stage.matrix)
        rows, columns = matrix.shape
        extent = (0.5, columns + 0.5, rows + 0.5, 0.5)
        image = axes.imshow(matrix, vmin=-largest, vmax=largest, cmap="RdBu_r", extent=extent)
        axes.set_title("\n".join(wrap(f"stage {number}: {stage.verdict}", 24)))
        axes.set_xlabel("output of block")
        if len(matrix) <= MOST_WRITTEN:
            for (row, column), weight in np.ndenumerate(matrix):
                colour = "white" if abs(weight) > 0.6 * largest else "black"
                shown = "" if np.isnan(weight) else f"{weight:.2g}" if abs(weight) < 1 else f"{weight:.3g}"
                axes.text(column + 1, row + 1, shown, color=colour, size=SMALLEST, ha="center", va="center")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5, integer=True))
    squares[0].set_ylabel("read by block (last row: the end)")
    picture.colorbar(image, ax=squares, label="weight")
    return picture


@checked
def plot_lesion(lesions: Annotated[Mapping[str, Lesion], MinLen(1)]) -> Picture:
    """Plot the error after dropping each block (open markers: transitions), and after dropping pairs."""
    picture, top, squares = _lesion_panels(len(lesions))
    for (title, one), style in zip(lesions.items(), rc_styles(), strict=False):
        colour, marker = style.get("color", "C0"), style.get("marker", "o")
        line = {"color": colour, "linewidth": 0.8}
        top.plot([n + 1 for n in one.single], list(one.single.values()), marker="", **line)
        top.plot([n + 1 for n in one.rescaled], list(one.rescaled.values()), marker="", linestyle="--", **line)
        for n, error in one.single.items():
            face = "none" if n in one.transitions else colour
            top.plot(n + 1, error, marker=marker, color=colour, markerfacecolor=face)
        top.axhline(one.intact, linestyle=":", **line)
        top.plot([], [], color=colour, marker=marker, label=title)
    top.set(xlabel="dropped block", ylabel="test error (%)", ylim=(0, None))
    top.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(
        picture,
        top.get_legend_handles_labels()[0],
        "open: blocks that change the shape; dotted: no block dropped; dashed: a neighbour takes a longer step instead",
    )
    for axes, (title, one), style in zip(squares, lesions.items(), rc_styles(), strict=False):
        _draw_pairs(axes, title if len(lesions) > 1 else "", one, style.get("color", "C0"))
    squares[0].set_ylabel("and block")
    picture.colorbar(squares[-1].images[0], ax=squares, label="error (%)")
    return picture


def _lesion_panels(networks: int) -> tuple[Picture, Axes, list[Axes]]:
    """Return a panel for single blocks and one for the pairs of each network, side by side or stacked."""
    width, height = matplotlib.rcParams["figure.figsize"]
    if width >= (1 + networks) * NARROWEST:
        picture = Picture()
        first, *others = picture.subplots(1, 1 + networks)
        return picture, first, others
    picture = Picture(figsize=(width, 1.7 * height))
    grid = picture.add_gridspec(2, networks)
    return picture, picture.add_subplot(grid[0, :]), [picture.add_subplot(grid[1, n]) for n in range(networks)]


def _draw_pairs(axes: Axes, title: str, one: Lesion, colour: str) -> None:
    """Draw a square for each pair, and single blocks on the diagonal."""
    size = len(one.names)
    table = np.full((size, size), np.nan)
    for n, error in one.single.items():
        table[n, n] = error
    for (a, b), error in one.pairs.items():
        table[b, a] = error
    axes.imshow(table, vmin=0, vmax=100, cmap="viridis", extent=(0.5, size + 0.5, size + 0.5, 0.5))
    axes.set_title(shorten_middle(title, 18), color=colour)
    axes.set_xlabel("dropped block")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, integer=True))


def _regions(spectrum: Sequence[StepSpectrum]) -> list[tuple[Scheme, Any, str]]:
    """Return the schemes whose regions are drawn, each with a line style and a label."""
    learned = [one.step for one in spectrum if one.step.k is not None]
    if learned:
        name = learned[0].scheme.name
        low, high = (end(step.k for step in learned if step.k is not None) for end in (min, max))
        shown = [(low, "-")] if low == high else [(low, "-"), (high, "--")]
        return [(get_scheme(name, k=k), style, f"{name}, k = {k:.2f}") for k, style in shown]
    scheme = spectrum[-1].step.scheme
    return [] if len(scheme.functions) > 1 else [(scheme, "-", scheme.name)]


def _left_end(scheme: Scheme) -> float:
    """Return the real part at which the scheme's stability region begins, as far as it is usually drawn."""
    region = stability_region(scheme)
    return float(np.min(np.broadcast_to(region.re, region.radius.shape)[region.radius <= STABLE], initial=0))
