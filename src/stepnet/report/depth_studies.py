"""Studies of depth: error as blocks go, error against the steps that images take, loss against the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from matplotlib.ticker import MaxNLocator
from torch import Tensor, nn

from stepnet.arguments import Count, OpenShare, checked
from stepnet.data import Batches, Data
from stepnet.errors import UserError
from stepnet.exchange import described_like, description_of
from stepnet.nets import (
    Choice,
    EarlyExit,
    ResidualNetwork,
    ViT,
    check_takes_matrices,
    count_to_drop,
    on_grid,
    refitted,
    removals,
    training_mode,
)
from stepnet.report.figures import Picture, legend_above, panels, rc_styles
from stepnet.training import RULELESS, Losses, Metric, data_of, evaluate, normalisation_of

LABELS = {"plain": "cheapest blocks dropped", "refitted": "the same, steps refitted", "random": "random blocks dropped"}
WAYS = tuple(LABELS)
TOLERANCES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)  # of early exits
BATCH = 250  # images
POINTS = 6  # depths at most between all blocks and those that stay


@dataclass(frozen=True)
class CoarseningStudy:
    """The task's first metric on the test set by the number of remaining blocks, for each way of dropping others."""

    metric: Metric
    blocks: int
    whole: float
    scores: dict[str, dict[int, float]]
    network: nn.Module  # with the fewest blocks, refitted

    @property
    def rows(self) -> list[list[str]]:
        """A table: the number of remaining blocks, and the metric for each way."""
        head = [[str(self.blocks), *[self.metric.show(self.whole)] * len(WAYS)]]
        depths = sorted(self.scores[WAYS[0]], reverse=True)
        return head + [[str(n), *(self.metric.show(self.scores[way][n]) for way in WAYS)] for n in depths]


@checked
def coarsening_study(
    network: nn.Module,
    keep: OpenShare,
    items: Count = 300,
    data: Data | None = None,
    note: Callable[[str], object] = lambda text: None,
    matrix: bool = False,
) -> CoarseningStudy:
    """Drop blocks one after another down to a share `keep`, and evaluate the network at a few depths on the way.

    Which blocks are dropped and how the steps are refitted, by numbers or by a `matrix`, is determined on this many
    training items, without their labels.
    """
    if matrix:
        check_takes_matrices(network)
    subject = on_grid(network)
    count, total = count_to_drop(subject, keep, None), sum(subject.depths)
    tests = data or data_of(description_of(network))
    normalise = normalisation_of(description_of(network), tests)
    inputs = next(iter(Batches(tests.train, normalise, min(items, len(tests.train))).epoch()))[0].contiguous()

    def score(coarse: nn.Module) -> float:
        return evaluate(described_like(coarse, network), data=tests).score

    whole = evaluate(network, data=tests)
    wanted = {count * (n + 1) // min(POINTS, count) for n in range(min(POINTS, count))}
    scores: dict[str, dict[int, float]] = {way: {} for way in WAYS}
    last: nn.Module = network
    for way, seed in (("plain", None), ("random", 0)):
        choice = Choice(network)
        for gone, block in enumerate(removals(choice, count, inputs, at_random=seed), 1):
            note(f"{way}: block {block.number + 1} of stage {block.stage + 1} goes, {total - gone} of {total} stay")
            if gone in wanted:
                scores[way][total - gone] = score(choice.subject.on(choice.grid(passed_on=False)))
                if seed is None:
                    last = refitted(network, choice, inputs, "matrix" if matrix else True)
                    scores["refitted"][total - gone] = score(last)
    return CoarseningStudy(whole.task.metric, total, whole.score, scores, described_like(last, network))


def plot_coarsening(study: CoarseningStudy) -> Picture:
    """Plot the metric against the number of remaining blocks, one line for each way."""
    picture, (axes,) = panels(1)
    for way in WAYS:
        points = sorted({study.blocks: study.whole, **study.scores[way]}.items())
        axes.plot(*zip(*points, strict=True), label=LABELS[way])
    axes.set(xlabel="blocks that stay", ylabel=f"test {study.metric.heading}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(picture, axes.get_legend_handles_labels()[0])
    return picture


class ExitPoint(NamedTuple):
    """The mean number of steps of an image, and the error in per cent, at one tolerance."""

    steps: float
    error: float


@checked
def exit_study(network: nn.Module, images: Tensor, labels: Tensor) -> dict[float, ExitPoint]:
    """Measure error and steps on these images with an early exit, `network(x, exit=tolerance)`; by tolerance."""
    if not isinstance(network, ResidualNetwork | ViT):
        raise UserError(f"{type(network).__name__} takes no exit= for images: expected a ResNet or ViT of create_model")
    points: dict[float, ExitPoint] = {}
    with training_mode(network, False), torch.inference_mode():
        for tolerance in TOLERANCES:
            wrong = steps = 0
            for x, y in zip(torch.split(images, BATCH), torch.split(labels, BATCH), strict=True):
                exit = EarlyExit(tolerance)
                wrong += int((network(x, exit=exit).argmax(dim=1) != y).sum())
                steps += int(exit.steps.sum())
            points[tolerance] = ExitPoint(steps / len(images), 100 * wrong / len(images))
    return points


def plot_exit(studies: Mapping[str, Mapping[float, ExitPoint]]) -> Picture:
    """Plot the error against the mean steps of an image, a line for each network and a point for each tolerance."""
    picture, (axes,) = panels(1)
    for (title, points), style in zip(studies.items(), rc_styles(), strict=False):
        axes.plot([p.steps for p in points.values()], [p.error for p in points.values()], label=title, **style)
    axes.set(xlabel="mean steps of an image", ylabel="test error (%)", xlim=(0, None), ylim=(0, None))
    legend_above(picture, axes.get_legend_handles_labels()[0])
    return picture


def plot_transfer(losses_by_rule: Losses) -> Picture:
    """Plot a panel without a rule and one for each rule; a ring marks the best rate of each depth."""
    picture, panes = panels(len(losses_by_rule))
    for axes, (rule, depths) in zip(panes, losses_by_rule.items(), strict=True):
        for (depth, losses), style in zip(depths.items(), rc_styles(), strict=False):
            finite = {lr: losses[lr] for lr in sorted(losses) if math.isfinite(losses[lr])}
            axes.plot(list(finite), list(finite.values()), label=f"depth {depth}", **style)
            if finite:
                best = min(finite, key=lambda lr: finite[lr])
                colour = style.get("color")
                axes.plot(best, finite[best], marker="o", markersize=9, markerfacecolor="none", color=colour)
        rates = sorted({lr for losses in depths.values() for lr in losses})
        axes.set(xlabel="learning rate", xscale="log", title="without a rule" if rule == RULELESS else f"dt = {rule}")
        axes.set_xticks(rates, [f"{lr:g}" for lr in rates])
        axes.minorticks_off()
    least, most = min(axes.get_ylim()[0] for axes in panes), max(axes.get_ylim()[1] for axes in panes)
    for axes in panes:
        axes.set_ylim(least, most)
    panes[0].set_ylabel("training loss")
    legend_above(picture, panes[0].get_legend_handles_labels()[0], "ring: the best rate of a depth")
    return picture
