"""Plots of the modified equation: what a scheme does besides solving its equation (section 2.2).

Points are the steps that the scheme takes, lines the modified equation's own solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from numpy.typing import NDArray

from stepnet.analysis import (
    LAX_FRIEDRICHS,
    LAX_WENDROFF,
    Stencil,
    analyse,
    convergence_rate,
    corrections,
    march_and_modified,
    modified_solution,
    run,
)
from stepnet.arguments import checked
from stepnet.errors import UserError
from stepnet.report.figures import COLOURS, QUIET, Picture, legend_above, panels, rc_styles
from stepnet.report.schematic import EDGE, SPACING, draw_stage, stage_size
from stepnet.report.scheme_plots import label_of
from stepnet.report.sketches import sketch_stage
from stepnet.report.step_drawing import INCHES
from stepnet.schemes import Scheme, get_scheme, solve

ModifiedExample = Literal["gradient", "diffusion", "transport", "steps"]
KS = (-0.3, -0.6, -0.9)
STEPS, STEP, START = 3, 1.2, 0.1  # of the picture of steps: how many, how long, from which state
STEP_TEXT = 9.0  # points
NETWORKS = (
    ("ResNet: Euler's scheme", "$u_{n+1} = u_n + f(u_n)$"),
    ("LM-ResNet: a linear multistep scheme", "$u_{n+1} = (1-k)\\,u_n + k\\,u_{n-1} + f(u_n)$"),
)
KEY = "points: steps, lines: modified equation"


@checked
def plot_modified(example: ModifiedExample = "gradient", ks: Sequence[float] | None = None) -> Picture:
    """Draw one of four examples.

    Euler and `lm` with several k on a "gradient" flow (acceleration) or on a "diffusion"; Lax-Friedrichs beside
    Lax-Wendroff ("transport"); the "steps" of Euler and of `lm` with the first k along a curve, below their networks.
    """
    if ks is None:
        ks = (0.5,) if example == "steps" else KS
    drawn = {"gradient": _gradient, "diffusion": _diffusion, "transport": _transport, "steps": _steps}
    lm = get_scheme("lm")
    if not ks or not all(map(lm.zero_stable_at, ks)):
        raise UserError(f"ks = {tuple(ks)}: expected numbers k in {lm.stable_range}, for which lm is zero-stable")
    colours = matplotlib.rcParams["axes.prop_cycle"].by_key().get("color", COLOURS)
    with matplotlib.rc_context({"axes.prop_cycle": cycler(color=colours)}):  # no markers: here points and lines differ
        return drawn[example](ks)


def _marched(ks: Sequence[float]) -> list[tuple[Scheme, dict[str, Any]]]:
    schemes = [get_scheme("euler"), *(get_scheme("lm", k=k) for k in ks)]
    return list(zip(schemes, rc_styles(), strict=False))


def _gradient(ks: Sequence[float]) -> Picture:
    """Plot `f = -grad g` for a narrow valley g: paths, and the distance to the minimum."""
    slopes, start, step, steps = np.array([0.04, 1.0]), (-1.0, 0.35), 0.9, 60
    picture, (left, right) = panels(2)
    x, y = np.meshgrid(np.linspace(-1.1, 1.1, 101), np.linspace(-0.5, 0.5, 101))
    left.contour(x, y, slopes[0] * x**2 + slopes[1] * y**2, levels=12, colors=QUIET, linewidths=0.4)
    for scheme, style in _marched(ks):
        flow = march_and_modified(scheme, slopes, step, steps, start)
        colour, label = style.get("color"), label_of(scheme)
        left.plot(*flow.march.T, ".-", color=colour, linewidth=0.8, markersize=4)
        distance = np.linalg.norm(flow.march, axis=1)
        right.semilogy(distance, ".", color=colour, markersize=4, label=label)
        right.semilogy(np.linalg.norm(flow.modified, axis=1), "-", color=colour, linewidth=0.8)
        rate = convergence_rate(scheme, slopes, step)
        right.semilogy(rate ** np.arange(steps + 1), ":", color=colour, linewidth=0.8)
    left.set(title="down a valley, one step size", xlabel="$u_1$", ylabel="$u_2$")
    left.set(xlim=(-1.1, 1.1), ylim=(-0.5, 0.5))
    right.set(title="distance from the minimum", xlabel="steps", ylabel="$|u_n|$")
    legend_above(picture, right.get_legend_handles_labels()[0], f"{KEY}, dotted: growth factor")
    return picture


def _diffusion(ks: Sequence[float]) -> Picture:
    """Plot `u_t = u_xx` on a periodic grid: the profile after some steps, and the slowest mode in time."""
    n, steps = 24, 40
    values = (2 * n * np.sin(np.pi * np.fft.rfftfreq(n))) ** 2  # eigenvalues of -u_xx on the grid
    step, grid = 1.6 / values.max(), np.arange(n) / n
    bump = np.exp(-(((grid - 0.5) / 0.1) ** 2))
    waves = np.fft.rfft(bump)
    picture, (left, right) = panels(2)
    left.plot(grid, bump, color=QUIET, linewidth=0.8, label="at t = 0")
    for scheme, style in _marched(ks):
        flow = march_and_modified(scheme, values, step, steps)
        colour = style.get("color")
        for states, axes_style in ((flow.march, "."), (flow.modified, "-")):
            left.plot(grid, np.fft.irfft(waves * states[-1], n), axes_style, color=colour, linewidth=0.8)
            label = label_of(scheme) if axes_style == "." else None
            right.plot(1e3 * flow.t, states[:, 1], axes_style, color=colour, linewidth=0.8, markersize=4, label=label)
    left.set(title=f"$u_t = u_{{xx}}$ after {steps} steps", xlabel="$x$", ylabel="$u$")
    right.set(title="its longest wave", xlabel="$1000\\,t$", ylabel="amplitude")
    right.axhline(0, color=QUIET, linewidth=0.6)
    handles = [*left.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    legend_above(picture, handles, KEY)
    return picture


def _transport(ks: Sequence[float]) -> Picture:
    """Plot `u_t = u_x`: one scheme is diffusive, the other dispersive."""
    n, ratio = 80, 0.6
    steps = round(n / ratio)  # once around, as nearly as whole steps allow
    grid = np.arange(n) / n
    start = np.exp(-(((grid - 0.5) / 0.07) ** 2))
    picture, both = panels(2)
    for axes, stencil in zip(both, (LAX_FRIEDRICHS, LAX_WENDROFF), strict=True):
        _draw_transport(axes, stencil, start, ratio, steps)
        axes.set(ylabel="$u$", ylim=(-0.2, 1.1))
    legend_above(picture, both[0].get_legend_handles_labels()[0])
    return picture


def _draw_transport(axes: Axes, stencil: Stencil, start: NDArray[np.float64], ratio: float, steps: int) -> None:
    n = len(start)
    grid = np.arange(n) / n
    axes.plot(grid, modified_solution(stencil, start, ratio, steps, terms=0), color=QUIET, linewidth=0.8, label="exact")
    axes.plot(grid, run(stencil, start, ratio, steps), ".", color="C0", markersize=4, label="scheme")
    axes.plot(
        grid, modified_solution(stencil, start, ratio, steps), color="C1", linewidth=0.8, label="modified equation"
    )
    ((power, coefficient),) = corrections(stencil, 1)
    size = float(coefficient.subs("r", ratio)) / ratio / n ** (power - 1)  # a dx^n/dt, with c = 1
    added = f"{size:.1e} u_{{{'x' * power}}}".replace("e-0", r" \cdot 10^{-").replace(" u_", "}\\,u_")
    axes.set(title=f"{stencil.name}: $u_t - u_x = {added}$", xlabel="$x$")


def _steps(ks: Sequence[float]) -> Picture:
    """Plot Euler and lm: two networks of the same blocks, and their states on the exact curve."""
    schemes = get_scheme("euler"), get_scheme("lm", k=ks[0])
    stages = [sketch_stage(scheme, STEPS) for scheme in schemes]
    width = min(matplotlib.rcParams["figure.figsize"][0], 4.4)
    natural, _ = stage_size(stages[0])
    scale = width / natural
    heights = [scale * stage_size(stage)[1] for stage in stages]
    text, curve = 2.9 * STEP_TEXT / 72, 0.52 * width
    total = sum(heights) + len(stages) * text + curve + 0.42
    picture = Picture(figsize=(width, total), layout=None)
    top = total
    for (name, formula), stage, height, colour in zip(NETWORKS, stages, heights, ("C0", "C1"), strict=True):
        for line, weight, drop in ((name, "bold", 0.8), (formula, "normal", 2.1)):
            place = 0.12 / width, (top - drop * STEP_TEXT / 72) / total
            picture.text(*place, line, color=colour, size=STEP_TEXT, weight=weight, va="center")
        top -= text + height
        draw_stage(picture.add_axes((0, top / total, 1, height / total)), stage, scale)
    axes = picture.add_axes((0, 0.42 / total, 1, curve / total))
    for scheme, style in zip(schemes, ("C0o-", "C1s-"), strict=True):
        draw_steps(axes, scheme, style)
    _finish_steps(axes, natural / INCHES / SPACING)
    return picture


def _finish_steps(axes: Axes, across: float) -> None:
    """Plot the exact curve, with ticks below the states of a network that is `across` steps wide."""
    times = np.linspace(0, STEPS, 200)
    axes.plot(times, _logistic(STEP * times), color=QUIET, linewidth=1.5, marker="", zorder=1)
    before = EDGE / SPACING
    axes.set(xlim=(-before, across - before), ylim=(0, 0.88), yticks=[], xticks=range(STEPS + 1))
    axes.set_xticklabels([f"$u_{n}$" for n in range(STEPS + 1)], size=STEP_TEXT)
    axes.tick_params(length=2)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    for text, at, colour, where in (
        ("exact solution\nof $u' = f(u)$", (1.5, 0.62), QUIET, "right"),
        ("■ LM-ResNet", (2.05, 0.22), "C1", "left"),
        ("● ResNet", (2.05, 0.1), "C0", "left"),
    ):
        axes.text(*at, text, color=colour, size=STEP_TEXT, ha=where)


def draw_steps(axes: Axes, scheme: Scheme, style: str) -> None:
    """Return the states of a scheme on `u' = g(u) = u (1 - u)`, with f scaled so that the scheme solves it."""
    mass = float(analyse(scheme).equation.mass)
    _, states = solve(lambda u: mass * u * (1 - u), np.array([START]), (0.0, STEPS * STEP), STEPS, scheme)
    axes.plot(range(STEPS + 1), states[:, 0], style, markersize=5, linewidth=1.2, label=label_of(scheme))


def _logistic(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + (1 / START - 1) * np.exp(-t))
