"""Plots of schemes and noises: stability regions, errors against the step size, weak errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from stepnet.analysis import EXTENT, LARGE_STEPS, SchemeAnalysis, analyse, one_step_error, weak_error
from stepnet.arguments import checked
from stepnet.errors import UserError
from stepnet.report.figures import ACCENT, INK, QUIET, Picture, check_suffix, legend_above, rc_styles, write_figure
from stepnet.schemes import Scheme, get_scheme
from stepnet.schemes.noises import Noise

STABLE = 1 + 1e-9  # the largest radius: a stream that only carries a constant has the eigenvalue 1, up to rounding
POINTS = 301  # on a side of the grid
EXACT_STEPS = tuple(2**n for n in range(2, 11))  # of a weak error
MOMENT_COLOURS = (INK, QUIET, ACCENT)  # of the first, second and third moment


@checked
def plot_stability(*schemes: str | Scheme, extent: tuple[float, float, float, float] = EXTENT) -> Picture:
    """Plot the regions of `z = dt lambda` in which each scheme is stable; a single region is shaded.

    Thick lines on the axes end at exact limits: of one scheme alone, and of regions that are a segment (midpoint2).
    A name stands for the scheme with its default coefficient; `get_scheme("lm", k=-0.5)` for that of one k.
    """
    width, height = matplotlib.rcParams["figure.figsize"]
    analyses = _analysed(schemes)
    if width < 2 * height or len(analyses) == 1:
        picture = Picture(figsize=(min(width, 1.25 * height), height))
        draw_stability(picture.subplots(), analyses, extent)
        return picture
    picture = Picture()  # a wide one has a panel for each scheme
    for axes, one, style in zip(picture.subplots(1, len(analyses), sharey=True), analyses, rc_styles(), strict=False):
        draw_stability(axes, [one], extent, style)
        axes.set(title=label_of(one.scheme), ylabel="Im $z$" if one is analyses[0] else "")
    picture.suptitle("stable where shaded or thick", size=matplotlib.rcParams["legend.title_fontsize"])
    return picture


@checked
def plot_order(*schemes: str | Scheme) -> Picture:
    """Plot the measured error at t = 1 against dt, and the slope of the derived order (dashed)."""
    picture = Picture()
    draw_order(picture.subplots(), _analysed(schemes))
    return picture


def draw_scheme(scheme: str | Scheme, path: Path) -> None:
    """Write both plots of a scheme, side by side; the suffix of `path` selects the format."""
    picture = Picture(figsize=(9.0, 4.2))
    check_suffix(path)
    left, right = picture.subplots(1, 2)
    analyses = _analysed((scheme,))
    draw_order(right, analyses)  # first: it raises for an equation that cannot be solved
    draw_stability(left, analyses)
    picture.suptitle(label_of(analyses[0].scheme))
    write_figure(picture, path)


def draw_stability(
    axes: Axes,
    schemes: list[SchemeAnalysis],
    extent: tuple[float, float, float, float] = EXTENT,
    first: dict[str, Any] | None = None,
) -> None:
    """Draw the regions on the axes, with the caller's styles from the `first` one on."""
    axes.axhline(0, color=QUIET, linewidth=0.6)
    axes.axvline(0, color=QUIET, linewidth=0.6)
    handles = []
    for analysis, style in zip(schemes, rc_styles() if first is None else [first], strict=False):
        colour, dash = style.get("color", "C0"), style.get("linestyle", "-")
        region = analysis.stability_region(extent, POINTS)
        radius = np.minimum(region.radius, 10.0)
        if len(schemes) == 1:
            axes.contourf(region.re, region.im, radius, levels=[0.0, STABLE], colors=[colour], alpha=0.15)
        axes.contour(region.re, region.im, radius, levels=[STABLE], colors=[colour], linestyles=[dash])
        for limit, ends in ((analysis.stability_interval, (-1, 0)), (analysis.imaginary_limit, (-1j, 1j))):
            if len(schemes) > 1 and (radius <= STABLE).mean() > 0.001:
                continue  # thick lines of several schemes would hide each other
            reach = min(float(limit), 2 * max(map(abs, extent)))
            along = reach * np.array(ends, dtype=complex)
            axes.plot(along.real, along.imag, color=colour, linewidth=2.5, solid_capstyle="butt", marker="")
        handles.append(Line2D([], [], color=colour, linestyle=dash, label=label_of(analysis.scheme)))
    axes.set(xlim=extent[:2], ylim=extent[2:])
    axes.set_aspect("equal")
    powers = {analysis.equation.derivative for analysis in schemes}
    power = f"^{powers.pop()}" if len(powers) == 1 and powers != {1} else ""
    axes.set(xlabel=rf"Re $z = \Delta t{power}\,\lambda$", ylabel="Im $z$")
    if len(schemes) > 1:
        legend_above(_figure(axes), handles, "stable inside")
    else:
        axes.set_title("stable where shaded or thick")


def draw_order(axes: Axes, schemes: list[SchemeAnalysis]) -> None:
    """Draw the errors and their slopes on the axes."""
    steps: Any = ()
    for analysis, style in zip(schemes, rc_styles(), strict=False):
        run = analysis.convergence()
        clear = run.error > 1e-12  # at rounding, a slope says nothing
        name = "measured" if len(schemes) == 1 else label_of(analysis.scheme)
        axes.plot(run.dt[clear], run.error[clear], **{"marker": "o", **style}, label=f"{name}, slope {run.slope:.2f}")
        guide = 0.6 * run.error[0] * (run.dt / run.dt[0]) ** analysis.order  # a little below, so that both are seen
        label = f"order {analysis.order}, derived" if len(schemes) == 1 else None
        axes.plot(run.dt[clear], guide[clear], "--", color=QUIET, linewidth=0.8, marker="", label=label, zorder=1)
        steps = run.dt
    axes.set(xscale="log", yscale="log", xlabel=r"$\Delta t$", ylabel="largest error at t = 1")
    axes.set_xticks(steps, [f"1/{round(1 / dt)}" for dt in steps])
    axes.xaxis.minorticks_off()
    if len(schemes) > 1:
        legend_above(_figure(axes), axes.get_legend_handles_labels()[0], "dashed: the derived order")
    else:
        axes.legend()


def label_of(scheme: Scheme) -> str:
    """Return the name of a scheme, and its k if it has a single one."""
    return f"{scheme.name}, k = {float(scheme.k):g}" if _has_one_k(scheme) else scheme.name


def _has_one_k(scheme: Scheme) -> bool:
    """Whether the scheme's coefficient is one number: x0 and hyper have several, by name."""
    return scheme.k is not None and not isinstance(scheme.k, Mapping)


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None  # axes of ours are drawn on one
    return figure


def _analysed(schemes: tuple[str | Scheme, ...]) -> list[SchemeAnalysis]:
    if not schemes:
        raise UserError("no scheme to draw: give one or more, such as plot_stability('euler', 'rk4')")
    analyses = [analyse(get_scheme(scheme)) for scheme in schemes]
    most = len(matplotlib.rcParams["axes.prop_cycle"])
    if len(analyses) > most:
        raise UserError(f"{len(analyses)} schemes and {most} colours: draw fewer in one picture")
    for each in analyses:
        if _has_one_k(each.scheme) and not math.isfinite(float(each.scheme.k)):
            raise UserError(f"{each.scheme} has no number k: give one")
    return analyses


def draw_noises(noises: Sequence[Noise], path: Path, samples: int) -> None:
    """Draw the weak error of each noise against the step size; the suffix of `path` selects the format."""
    figure = Figure(figsize=(4.5 * len(noises), 4.2), layout="constrained")
    check_suffix(path)
    for axes, noise in zip(figure.subplots(1, len(noises), squeeze=False, sharey=True)[0], noises, strict=True):
        for moment, colour in enumerate(MOMENT_COLOURS, start=1):
            _draw_moment(axes, noise, moment, colour, samples)
        axes.set(title=noise.heading, xlabel=r"$\Delta t$", xscale="log", yscale="log")
        axes.legend(frameon=False)
    figure.axes[0].set_ylabel("weak error")
    figure.suptitle(f"lines: exact; points: means of {samples:,} paths, with 95 % intervals", size="medium")
    write_figure(figure, path)


def _draw_moment(axes: Axes, noise: Noise, moment: int, colour: str, samples: int) -> None:
    exact = [weak_error(noise, n, moment) for n in EXACT_STEPS]
    term = one_step_error(noise, moment)
    label = f"${term.name}$, order {term.order - 1}"
    axes.plot([each.dt for each in exact], [abs(each.error) for each in exact], color=colour, label=label)
    for index, n in enumerate(LARGE_STEPS):
        sampled = weak_error(noise, n, moment, samples=samples, seed=index)
        if abs(sampled.error) > sampled.interval:  # what sampling cannot tell from 0 has no place on this axis
            axes.errorbar(sampled.dt, abs(sampled.error), sampled.interval, fmt="o", markersize=3, color=colour)
