"""The picture of a scheme: its region of stability, and its error against the step size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from stepnet.analysis import (
    Convergence,
    convergence,
    imaginary_limit,
    order,
    stability_interval,
    stability_region,
)
from stepnet.report.figures import FILL, INK, QUIET, check_suffix, write_figure
from stepnet.schemes import Scheme


def draw_scheme(scheme: Scheme, path: Path) -> None:
    """Write both panels to `path`; the suffix chooses the format."""
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    check_suffix(figure, path)
    left, right = figure.subplots(1, 2)
    _draw_region(left, scheme)
    _draw_slope(right, scheme, convergence(scheme))
    figure.suptitle(f"{scheme!r}" if scheme.k is None else f"{scheme.name}, k = {float(scheme.k):g}")
    write_figure(figure, path)


def _draw_region(axes: Any, scheme: Scheme) -> None:
    extent = (-4.5, 2.0, -3.25, 3.25)
    region = stability_region(scheme, extent, n=301)
    axes.axhline(0, color=QUIET, linewidth=0.6)
    axes.axvline(0, color=QUIET, linewidth=0.6)
    axes.contourf(region.re, region.im, region.radius, levels=[0.0, 1.0], colors=[FILL])
    axes.contour(region.re, region.im, np.minimum(region.radius, 10.0), levels=[1.0], colors=[INK], linewidths=1.2)
    # the exact limits on the axes: some regions are a segment, which no grid shows (midpoint2, leapfrog)
    left, up = (min(float(limit), 9.0) for limit in (stability_interval(scheme), imaginary_limit(scheme)))
    axes.plot([-left, 0], [0, 0], color=INK, linewidth=2.5)
    axes.plot([0, 0], [-up, up], color=INK, linewidth=2.5)
    axes.set(xlim=extent[:2], ylim=extent[2:])
    axes.set_aspect("equal")
    power = f"^{scheme.equation.derivative}" if scheme.equation.derivative > 1 else ""
    axes.set(
        title="stable where shaded; limits on the axes bold",
        xlabel=rf"Re $z = \Delta t{power}\,\lambda$",
        ylabel="Im $z$",
    )


def _draw_slope(axes: Any, scheme: Scheme, found: Convergence) -> None:
    p = order(scheme)
    axes.loglog(found.dt, found.error, "o-", color=INK, label=f"measured, slope {found.slope:.2f}")
    guide = found.error[0] * (found.dt / found.dt[0]) ** p
    axes.loglog(found.dt, guide, "--", color=QUIET, label=f"order {p}, from the trees")
    axes.set(title="error at t = 1", xlabel=r"$\Delta t$", ylabel="max error")
    axes.set_xticks(found.dt, [f"1/{round(1 / dt)}" for dt in found.dt])
    axes.xaxis.minorticks_off()
    axes.legend(frameon=False)
