"""Plot the weak error of a noise against the step size, exact and sampled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from stepnet.analysis import LARGE_STEPS, one_step_error, weak_error
from stepnet.report.figures import ACCENT, INK, QUIET, check_suffix, write_figure
from stepnet.schemes.noises import Noise

EXACT_STEPS = tuple(2**n for n in range(2, 11))
COLOURS = (INK, QUIET, ACCENT)  # of the first, second and third moment


def draw_noises(noises: Sequence[Noise], path: Path, samples: int) -> None:
    """Draw one panel for each noise; the suffix of `path` selects the format."""
    figure = Figure(figsize=(4.5 * len(noises), 4.2), layout="constrained")
    check_suffix(figure, path)
    for axes, noise in zip(figure.subplots(1, len(noises), squeeze=False, sharey=True)[0], noises, strict=True):
        for moment, colour in enumerate(COLOURS, start=1):
            _draw_moment(axes, noise, moment, colour, samples)
        axes.set(title=noise.heading, xlabel=r"$\Delta t$", xscale="log", yscale="log")
        axes.legend(frameon=False)
    figure.axes[0].set_ylabel(f"weak error (lines: exact; points: {samples:,} paths, 95 %)")
    write_figure(figure, path)


def _draw_moment(axes: Any, noise: Noise, moment: int, colour: str, samples: int) -> None:
    exact = [weak_error(noise, n, moment) for n in EXACT_STEPS]
    term = one_step_error(noise, moment)
    label = f"${term.name}$, order {term.order - 1}"
    axes.plot([each.dt for each in exact], [abs(each.error) for each in exact], color=colour, label=label)
    for index, n in enumerate(LARGE_STEPS):
        sampled = weak_error(noise, n, moment, samples=samples, seed=index)
        if abs(sampled.error) > sampled.interval:  # what sampling cannot tell from 0 has no place on this axis
            axes.errorbar(sampled.dt, abs(sampled.error), sampled.interval, fmt="o", markersize=3, color=colour)
