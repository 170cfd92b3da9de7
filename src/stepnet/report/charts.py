"""The charts of the report as data and as text: curves, k_n by layer, error against parameters."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from stepnet.errors import counted
from stepnet.report.paper import CIFAR, IMAGENET, PaperRow, count, multiply_adds
from stepnet.schemes import by_name, get_scheme, layer_and_name
from stepnet.training import KByLayer, Metric, NetworkRuns, RunHistory

FRAMES = 60  # the most epochs on the slider of k_n: the page of a hundred long runs stays small

Json = Any  # what json.dumps takes


def section_data(data: str, networks: Sequence[NetworkRuns]) -> dict[str, Json]:
    """Return the data of the charts of one data set."""
    runs = [(number, run) for number, network in enumerate(networks) for run in network.runs]
    metric = networks[0].task.metric
    curves = {"score": metric.name, "test_score": f"test_{metric.name}", "loss": "loss", "test_loss": "test_loss"}
    return {
        "data": data,
        "metric": {"name": metric.name, "heading": metric.heading},
        "networks": [network.label for network in networks],
        "runs": [
            {"network": number, "seed": run.config.seed, "folder": str(run.folder), "complete": run.complete}
            | {"elapsed": _finite(run.elapsed)}
            | {curve: _finite(run.series(name)) for curve, name in curves.items()}
            for number, run in runs
        ],
        "k": _coefficients([run for _, run in runs], {network.scheme for network in networks}),
        "ours": [_our_point(network) for network in networks if network.cost and network.scores],
        "paper": printed_points(data),
    }


def printed_points(data: str) -> list[dict[str, Json]]:
    """Return the paper's points for a data set: error, parameters as printed or counted, multiply-adds."""
    return [_printed_point(row) for row in (*CIFAR, *IMAGENET) if row.dataset == data]


def curves_words(networks: Sequence[NetworkRuns]) -> str:
    """Describe the curves in words, for screen readers."""
    metric = networks[0].task.metric
    ends = [
        f"{network.label} from {_words(metric, _first(network))} to {_words(metric, statistics.fmean(network.scores))}"
        for network in networks
        if network.scores
    ]
    longest = max((len(run.epochs) for network in networks for run in network.runs), default=0)
    return f"Test {metric} over {counted(longest, 'epoch')}, mean over seeds: {_listed(ends)}." if ends else ""


def coefficients_words(networks: Sequence[NetworkRuns]) -> str:
    """Describe k_n by layer in words, for screen readers."""
    ranges = []
    for network in networks:
        final = [run.coefficients[-1] for run in network.runs if run.epochs and run.coefficients[-1]]
        ks = [(k, layer) for layers in final for layer, k in layers.items() if math.isfinite(k)]
        if not ks:
            continue
        (low, lowest), (high, highest) = min(ks), max(ks)
        ranges.append(f"{network.label} from {low:.3f} ({lowest}) to {high:.3f} ({highest})")
    return f"Learned coefficients after the last epoch: {_listed(ranges)}." if ranges else ""


def compression_words(networks: Sequence[NetworkRuns]) -> str:
    """Describe the score against parameters in words, for screen readers."""
    metric = networks[0].task.metric
    points = [
        f"{network.label} {network.cost.parameters / 1e6:.2f} M and {_words(metric, statistics.fmean(network.scores))}"
        for network in networks
        if network.cost and network.scores
    ]
    printed = len(printed_points(networks[0].config.data))
    paper = f"{printed} points of the paper beside them" if printed else "the paper has no figure for this data set"
    return f"Parameters and mean test {metric}: {_listed(points)}; {paper}." if points else ""


def _coefficients(runs: Sequence[RunHistory], schemes: set[str | None]) -> Json:
    """Return `k_n`, or each coefficient by its name, of every run that has any, at the epochs of the slider."""
    learned = [(number, run) for number, run in enumerate(runs) if any(run.coefficients)]
    if not learned:
        return None
    length = max(len(run.epochs) for _, run in learned)
    stops = sorted({round(j * (length - 1) / max(1, min(length, FRAMES) - 1)) for j in range(min(length, FRAMES))})
    bands = {scheme.stable_k for scheme in map(get_scheme, filter(None, schemes)) if scheme.trainable}
    return {
        "epochs": [stop + 1 for stop in stops],
        "band": bands.pop() if len(bands) == 1 else None,
        "runs": [
            {
                "run": number,
                "name": name,
                "layers": list(layers),
                "places": places_of(run.coefficients[-1] or run.coefficients[0])[name],
                "values": [
                    _finite(list(by_name(run.coefficients[min(stop, len(run.epochs) - 1)]).get(name, {}).values()))
                    for stop in stops
                ],
            }
            for number, run in learned
            for name, layers in by_name(run.coefficients[-1] or run.coefficients[0]).items()
        ],
    }


def places_of(ks: KByLayer) -> dict[str, list[int]]:
    """The layers of each coefficient by their number among all; in `dense`, older states enter in later layers."""
    named = by_name(ks)
    order = {layer: n + 1 for n, layer in enumerate(dict.fromkeys(layer_and_name(key)[0] for key in ks))}
    return {name: [order[layer] for layer in layers] for name, layers in named.items()}


def _our_point(network: NetworkRuns) -> Json:
    assert network.cost is not None
    scores = network.scores
    return {
        "label": network.label,
        "parameters": network.cost.parameters,
        "multiply_adds": network.cost.multiply_adds or None,
        "seconds": _finite([statistics.fmean(network.values(lambda run: run.elapsed[-1]) or [math.nan])])[0],
        "score": _rounded(statistics.fmean(scores)),
        "deviation": _rounded(statistics.stdev(scores)) if len(scores) > 1 else None,
        "seeds": len(scores),
    }


def _printed_point(row: PaperRow) -> dict[str, Json]:
    parameters = count(row).parameters if row.params is None else float(row.params.removesuffix("M")) * 1e6
    point = {"family": row.model, "label": f"{row.model} {row.layers}", "parameters": parameters}
    return point | {"multiply_adds": multiply_adds(row), "score": row.error}


def _first(network: NetworkRuns) -> float:
    name = f"test_{network.task.metric.name}"
    return statistics.fmean(network.values(lambda run: run.series(name)[0]) or [math.nan])


def _words(metric: Metric, value: float) -> str:
    return f"{value:.{metric.digits}f} {metric.unit}".rstrip()


def _finite(values: Sequence[float]) -> list[float | None]:
    return [_rounded(value) if math.isfinite(value) else None for value in values]


def _rounded(value: float) -> float:
    """Round to five digits, which halves the size of the page."""
    return float(f"{value:.5g}")


def _listed(parts: Sequence[str], most: int = 8) -> str:
    more = f"; and {len(parts) - most} more" if len(parts) > most else ""
    return "; ".join(parts[:most]) + more
