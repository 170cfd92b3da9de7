"""The paper's figures from runs: curves (3 and 5), learned coefficients (4), error against parameters (2, right)."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, product, zip_longest
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation
from torch import nn

from stepnet.arguments import checked
from stepnet.errors import UserError, check_known
from stepnet.escaping import for_plot
from stepnet.nets import coefficients
from stepnet.report.charts import places_of, printed_points
from stepnet.report.figures import Picture, legend_above, panels, rc_styles
from stepnet.report.grouping import by_data, read_histories
from stepnet.schemes import by_name, get_scheme
from stepnet.training import KByLayer, NetworkRuns, Run, RunHistory, single_numbers

BESIDE = 0.09  # inches between points of equal cost
RunFolder: TypeAlias = str | PathLike[str]
OneOrMore: TypeAlias = RunFolder | Sequence[RunFolder] | Iterator[RunFolder]


@checked
def plot_curves(
    runs: OneOrMore,
    measure: str | None = None,
    log: bool | None = None,
    labels: Sequence[str] | None = None,
    over: Literal["epoch", "seconds"] = "epoch",
) -> Picture:
    """Plot training (dotted) and test (solid) curves as in figures 3 and 5; seeds thin, their mean thick.

    `measure`: `loss` or a metric of the runs' task; by default its first, of classification the error.
    `over`: epochs, or the seconds of training, of which the epochs of a multilevel run take unequal many.
    By default the axis is logarithmic where the curves fall to a fifth or less: runs differ at the end.
    """
    picture = Picture()
    axes = picture.subplots()
    networks = _networks(runs, labels=labels)
    metrics = {metric.name: metric for metric in networks[0].task.metrics}
    measure = measure or next(iter(metrics))
    check_known("measure", measure, ["loss", *metrics])
    for network, style in zip(networks, rc_styles(), strict=False):
        runs_of = [run for run in network.runs if run.epochs]
        times = [run.elapsed if over == "seconds" else numbers(run) for run in runs_of]
        for name, dash, label in ((f"test_{measure}", "-", network.label), (measure, ":", None)):
            _draw_seeds(axes, times, [run.series(name) for run in runs_of], dash, style, label)
    axes.set(
        xlabel="epoch" if over == "epoch" else "seconds of training",
        ylabel=metrics[measure].heading if measure in metrics else "loss",
    )
    seen = [value for line in axes.lines for value in np.asarray(line.get_ydata(), float) if value > 0]
    if log or (log is None and seen and max(seen) >= 5 * min(seen)):
        _log_axis(axes, "y")
    else:
        axes.set(ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(picture, axes.get_legend_handles_labels()[0], "solid: test, dotted: training")
    return picture


def _draw_seeds(
    axes: Axes,
    times: Sequence[Sequence[float]],
    curves: Sequence[Sequence[float]],
    dash: str,
    style: dict[str, Any],
    label: str | None,
) -> None:
    """Draw the curves of several seeds thin, and their mean thick."""
    for time, curve in zip(times, curves, strict=True) if len(curves) > 1 else ():
        axes.plot(time, curve, dash, color=style["color"], alpha=0.35, linewidth=0.6)
    when = [statistics.fmean(values) for values in _by_epoch(times)]
    mean = [statistics.fmean(values) for values in _by_epoch(curves)]
    marker = style.get("marker", "o") if len(mean) == 1 else ""  # one point makes no line
    axes.plot(when, mean, dash, color=style["color"], label=label, marker=marker)


def numbers(run: RunHistory) -> list[float]:
    """Return the epochs of a run, from 1."""
    return [float(n + 1) for n in range(len(run.epochs))]


@checked
def plot_coefficients(
    runs: OneOrMore | nn.Module, epoch: int | None = None, labels: Sequence[str] | None = None
) -> Picture:
    """Plot the learned `k_n` by layer as in figure 4, with the interval in which the scheme is zero-stable.

    Coefficients with names have a panel for each name, with a curve for each entry of a matrix, row by row.

    Of a network, those that it has; of runs, those after `epoch` (from 1), the last one by default.
    """
    groups = _learned(runs, epoch, labels)
    names = list(dict.fromkeys(name for _, runs_of in groups for ks in runs_of for name in by_name(ks)))
    arrays: dict[str, list[str]] = {}
    for name in names:
        arrays.setdefault(name.partition("[")[0], []).append(name)
    picture, panes = panels(len(arrays))
    band = get_scheme("lm").stable_k if names == ["k"] else None
    pool = rc_styles()
    styles: dict[str, dict[str, Any]] = defaultdict(lambda: next(pool))
    handles: dict[str, Artist] = {}
    for axes, (array, entries) in zip(panes, arrays.items(), strict=True):
        if band is not None:
            axes.axhspan(*band, color="C0", alpha=0.08, linewidth=0)
            axes.axhline(0, color="0.6", linewidth=0.6)
        deepest: list[str] = []
        for (network, runs_of), name in product(groups, entries):
            label = network if name == array else f"{network}, entry {name[len(array) + 1 : -1]}"
            for ks in runs_of:
                if layers := by_name(ks).get(name):
                    look: Any = {**styles[label], "alpha": 0.8, "label": label}
                    (handles[label],) = axes.plot(places_of(ks)[name], list(layers.values()), **look)
                    deepest = max(deepest, list(layers), key=len)
        staged = _mark_stages(axes, deepest)
        axes.set(xlabel="layer, in order of depth", ylabel="$k_n$" if names == ["k"] else array)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    shaded = "shaded: zero-stable if all steps had this k; " if band else ""
    legend_above(picture, list(handles.values()), f"{shaded}vertical lines: between stages" if staged else shaded[:-2])
    return picture


def _learned(
    runs: OneOrMore | nn.Module, epoch: int | None, labels: Sequence[str] | None
) -> list[tuple[str, list[KByLayer]]]:
    """Return each network that has learned coefficients by its label, with those of each of its runs."""
    if isinstance(runs, nn.Module):
        groups = [(labels[0] if labels else type(runs).__name__, [single_numbers(coefficients(runs))])]
    else:
        networks = _networks(runs, labels=labels)
        groups = [(network.label, [_after(run, epoch) for run in network.runs]) for network in networks]
    learned = [(label, kept) for label, runs_of in groups if (kept := [ks for ks in runs_of if ks])]
    if not learned:
        raise UserError("no learned k: the schemes of these networks have no trained coefficient")
    return learned


@checked
def plot_compression(runs: OneOrMore = (), data: str = "cifar10", labels: Sequence[str] | None = None) -> Picture:
    """Plot test error against parameters as in figure 2 (right), and against the multiply-adds of one image.

    The paper's points are open, those of the runs filled. Networks of the same blocks have the same parameters; what
    tells their schemes apart is how often a step evaluates its block. Points of equal cost stand side by side.
    """
    folders = _folders(runs)
    picture, (left, right) = panels(2)
    styles = rc_styles()
    for family, rows in groupby(printed_points(data), key=lambda point: str(point["family"])):
        points, style = list(rows), next(styles)
        for axes, cost in ((left, "parameters"), (right, "multiply_adds")):
            known = [(point[cost], point["score"]) for point in points if point[cost]]
            look: Any = {"linestyle": ":", "markerfacecolor": "none", "label": f"{family}, paper"}
            axes.plot(*zip(*known, strict=True), **style, **look)
    equal = Counter[tuple[int, str]]()
    for network in _networks(folders, data, labels) if folders else ():
        errors = network.scores
        if network.cost is None or not errors:
            continue
        spread, style = statistics.stdev(errors) if len(errors) > 1 else None, next(styles)
        for panel, count in enumerate((network.cost.parameters, network.cost.multiply_adds)):
            if count:
                axes, place = (left, right)[panel], (panel, f"{count:.2g}")
                beside = axes.transData + ScaledTranslation(equal[place] * BESIDE, 0, picture.dpi_scale_trans)
                look = {**style, "linestyle": "", "label": network.label, "transform": beside}
                mean = statistics.fmean(errors)
                axes.errorbar([count], [mean], spread, **look)
                axes.update_datalim([(count, mean - (spread or 0)), (count, mean + (spread or 0))])
                equal[place] += 1
    if not left.has_data():
        ours = "the runs given have no finished epoch or no recorded cost" if folders else "no run of it was given"
        raise UserError(f"no point for {data!r}: the paper has none, and {ours}")
    for axes, name in ((left, "parameters"), (right, "multiply-adds of one image")):
        axes.set(xlabel=name, ylabel="test error (%)")
        _log_axis(axes, "x")
    note = "; points side by side: equal cost" if max(equal.values(), default=0) > 1 else ""
    legend_above(picture, left.get_legend_handles_labels()[0], f"{data}, logarithmic axes of cost{note}")
    return picture


def _networks(runs: OneOrMore, data: str | None = None, labels: Sequence[str] | None = None) -> list[NetworkRuns]:
    """Return all networks of the runs, which must use one data set: curves of two have no common axis."""
    folders = _folders(runs)
    if not folders:
        raise UserError("no runs: name at least one run folder")
    histories = read_histories(folders)
    if not any(history.epochs for history in histories):
        Run(histories[0].folder).finished()  # which says so
    by_name = by_data(histories, labels)
    if len(by_name) > 1 or (data is not None and data not in by_name):
        raise UserError(f"runs on {', '.join(by_name)}: expected runs on {data or 'one data set'}, one figure for each")
    networks = next(iter(by_name.values()))
    return networks if labels else [dataclasses.replace(each, label=for_plot(each.label)) for each in networks]


def _folders(runs: OneOrMore) -> list[Path]:
    return [Path(runs)] if isinstance(runs, str | PathLike) else [Path(run) for run in runs]


def _after(run: RunHistory, epoch: int | None) -> KByLayer:
    if epoch is not None and not 1 <= epoch <= len(run.epochs):
        raise UserError(f"epoch {epoch}: {run.folder} has 1 to {len(run.epochs)}")
    return run.coefficients[-1 if epoch is None else epoch - 1] if run.epochs else {}


def _by_epoch(curves: Sequence[Sequence[float]]) -> Iterator[list[float]]:
    for values in zip_longest(*curves):
        yield [value for value in values if value is not None]


def _mark_stages(axes: Axes, layers: Sequence[str]) -> bool:
    """Draw a line between the last layer of a stage and the first of the next; return whether there is one."""
    place, marked = 0.5, False
    for _, members in groupby(layers, key=lambda layer: layer.rpartition(".blocks")[0] or layer.rpartition(".")[0]):
        place += len(list(members))
        if place < len(layers):
            axes.axvline(place, color="0.75", linewidth=0.6)
            marked = True
    return marked


def _log_axis(axes: Axes, which: Literal["x", "y"]) -> None:
    """Set a logarithmic axis with limits and ticks at 1, 2, 5, 10, …"""
    axis, line = (axes.xaxis, axes.dataLim.intervalx) if which == "x" else (axes.yaxis, axes.dataLim.intervaly)
    low, high = (axes.dataLim.minposx if which == "x" else axes.dataLim.minposy), float(line[1])
    axes.set(**{f"{which}scale": "log"})
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    marks = [mark * 10.0**n for n in decades for mark in (1, 2, 5)]
    below, above = (mark for mark in (max(m for m in marks if m <= low), min(m for m in marks if m >= high)))
    if below == above:  # all points at one place
        below, above = marks[marks.index(below) - 1], marks[marks.index(below) + 1]
    axes.set(**{f"{which}lim": (0.93 * below, 1.07 * above)})
    shown = [mark for mark in marks if below <= mark <= above]
    axis.set_major_locator(FixedLocator(shown if len(shown) < 7 else [mark for mark in shown if f"{mark:e}"[0] == "1"]))
    axis.set_major_formatter(FuncFormatter(_short))
    axis.set_minor_locator(LogLocator(subs=range(1, 10)))
    axis.set_minor_formatter(NullFormatter())


def _short(value: float, position: int | None = None) -> str:
    """Format a tick: `500`, `20k`, `0.5M`, `3G`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if (value >= 0.1 * size and size > 1e3) or value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
