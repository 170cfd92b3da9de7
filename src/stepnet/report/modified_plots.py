"""The modified equation, seen: what a scheme does besides solving its own equation (section 2.2).

Points are the steps that the scheme takes, lines the modified equation's own solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes

from stepnet.analysis import LAX_FRIEDRICHS, LAX_WENDROFF, analyse, convergence_rate, march_and_modified
from stepnet.analysis.transport import Stencil, corrections, modified_solution, run
from stepnet.arguments import checked
from stepnet.errors import UserError
from stepnet.report.figures import COLOURS, QUIET, Picture, rc_styles, scale_marks
from stepnet.report.schematic import INCHES, draw_stage
from stepnet.report.scheme_plots import label_of, legend_above
from stepnet.report.sketch import sketch_stage
from stepnet.schemes import Point, Scheme, advance, get_scheme
from stepnet.schemes.plan import plan, taken_by

ModifiedExample = Literal["gradient", "diffusion", "transport", "steps"]
KS = (-0.3, -0.6, -0.9)
KEY = "points: steps, lines: modified equation"


@checked
def plot_modified(example: ModifiedExample = "gradient", ks: Sequence[float] = KS) -> Picture:
    """One of four pictures.

    Euler and `lm` with several k on a "gradient" flow (acceleration) or on a "diffusion"; Lax-Friedrichs beside
    Lax-Wendroff ("transport"); Euler's, Heun's and `lm`'s "steps" along a curve, each above its network.
    """
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
    """`f = -grad g`, g a long valley: the paths, and the distance that is left."""
    slopes, start, step, steps = np.array([0.04, 1.0]), (-1.0, 0.35), 0.9, 60
    picture = _wide()
    left, right = picture.subplots(1, 2)
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
    left.set(title="down a valley, the same step for all", xlabel="$u_1$", ylabel="$u_2$")
    left.set(xlim=(-1.1, 1.1), ylim=(-0.5, 0.5))
    right.set(title="distance from the minimum", xlabel="steps", ylabel="$|u_n|$")
    legend_above(right, right.get_legend_handles_labels()[0], f"{KEY}, dotted: growth factor", 4)
    return picture


def _diffusion(ks: Sequence[float]) -> Picture:
    """`u_t = u_xx` on a periodic grid: the profile after some steps, and the slowest wave in time."""
    n, steps = 24, 40
    values = (2 * n * np.sin(np.pi * np.fft.rfftfreq(n))) ** 2  # eigenvalues of -u_xx on the grid
    step, grid = 1.6 / values.max(), np.arange(n) / n
    bump = np.exp(-(((grid - 0.5) / 0.1) ** 2))
    waves = np.fft.rfft(bump)
    picture = _wide()
    left, right = picture.subplots(1, 2)
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
    legend_above(right, handles, KEY, 5)
    return picture


def _transport(ks: Sequence[float]) -> Picture:
    """`u_t = u_x`: one scheme diffuses, the other disperses."""
    n, ratio = 80, 0.6
    steps = round(n / ratio)  # once around, as nearly as whole steps allow
    grid = np.arange(n) / n
    start = np.exp(-(((grid - 0.5) / 0.07) ** 2))
    picture = _wide()
    for axes, stencil in zip(picture.subplots(1, 2, sharey=True), (LAX_FRIEDRICHS, LAX_WENDROFF), strict=True):
        _draw_transport(axes, stencil, start, ratio, steps)
    picture.axes[0].set_ylabel("$u$")
    picture.axes[0].legend()
    return picture


def _draw_transport(axes: Axes, stencil: Stencil, start: Any, ratio: float, steps: int) -> None:
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
    """Each step as a carry (dotted) and an increment (arrow), along the curve that it follows."""
    picture = Picture(figsize=_size(3.0, 1.35))
    schemes = (get_scheme("euler"), get_scheme("heun"), get_scheme("lm", k=ks[0]))
    above, below = picture.subplots(2, 3, sharey="row", height_ratios=(3, 1))
    for axes, network, scheme in zip(above, below, schemes, strict=True):
        draw_steps(axes, scheme)
        draw_stage(network, sketch_stage(scheme, 3))
    above[0].set_ylabel("$u$")
    picture.draw_without_rendering()  # only now is it known how much room a network has
    for network in below:
        left, right = network.get_xlim()
        room = network.get_window_extent().width / picture.dpi
        scale_marks(network, min(1.0, room / (INCHES * (right - left))))
    return picture


def draw_steps(axes: Axes, scheme: Scheme, step: float = 1.2, steps: int = 4) -> None:
    """Steps of a scheme on `u' = u (1 - u)`, whose right-hand side is scaled so that its own equation is that one."""
    mass = float(analyse(scheme).equation.mass)
    asked: list[tuple[float, float, float]] = []  # time, state, slope of each evaluation
    time = 0.0

    def rhs(u: float, c: float, i: int) -> float:
        slope = mass * u * (1 - u)
        asked.append((time + float(c) * step, u, slope))
        return slope

    u = 0.1
    past: tuple[Point, ...] = ()
    times = np.linspace(0, steps * step, 200)
    axes.plot(times, 1 / (1 + 9 * np.exp(-times)), color=QUIET, label="exact")
    for n, planned in enumerate(plan(scheme, steps).steps):
        time, past = n * step, (Point(u, rhs), *past)[: scheme.steps]
        carry = taken_by(scheme, planned.taker).carry(past, step, scheme.k)
        u_next = advance(scheme, past, step, scheme.k)
        axes.plot([time, time + step], [u, carry], ":", color="C0", marker="", label=None if n else "carry")
        axes.annotate("", (time + step, u_next), (time + step, carry), arrowprops={"arrowstyle": "->", "color": "C1"})
        u = u_next
        axes.plot(time + step, u, "o", color="C0", markersize=5)
    axes.plot(0, 0.1, "o", color="C0", markersize=5)
    for number, (at, state, slope) in enumerate(asked):
        span = np.array([-0.2, 0.2]) * step
        label = None if number else "slope $f$"
        axes.plot(at + span, state + span * slope / mass, color="C2", linewidth=2, marker="", label=label)
    axes.plot([], [], color="C1", label="increment")
    axes.set(title=label_of(scheme), xlabel="$t$")
    axes.legend()


def _wide() -> Picture:
    return Picture(figsize=_size(2.0, 1.0))


def _size(across: float, up: float) -> tuple[float, float]:
    """So many of the caller's own figures across and up, of the size that fits two in a row on a screen."""
    width, height = matplotlib.rcParams["figure.figsize"]
    return 0.75 * across * width, 0.85 * up * height
