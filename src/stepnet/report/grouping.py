"""Group runs by data set and network, and find the paper's figure for a network."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stepnet.errors import UserError
from stepnet.report.paper import CIFAR, IMAGENET, STOCHASTIC
from stepnet.training import FINGERPRINTS, INCIDENTAL, NetworkRuns, RunHistory, TrainConfig, write_label


def read_histories(folders: Iterable[Path]) -> list[RunHistory]:
    """Read the runs in order, each once."""
    return [RunHistory.read(folder) for folder in {folder.resolve(): folder for folder in folders}.values()]


def by_data(histories: Sequence[RunHistory], labels: Sequence[str] | None = None) -> dict[str, list[NetworkRuns]]:
    """Group the runs by data set and network: errors on different data are not comparable.

    The first one, which the others are compared with, is a plain network (Euler's scheme) if there is any. `labels`
    name the networks in the order in which their first runs are given; else each is named by what sets it apart.
    """
    contents: dict[str, set[str | None]] = {}
    for history in histories:
        contents.setdefault(history.config.data, set()).add(history.config.data_fingerprint)
    tasks = {history.task.name for history in histories}
    groups: dict[str, list[RunHistory]] = {}
    for history in histories:
        data, content = history.config.data, history.config.data_fingerprint
        changed = len(contents[data] - {None}) > 1  # under the same name; runs made before do not say
        name = f"{data} ({content or 'contents unknown'})" if changed else data
        groups.setdefault(f"{name}: {history.task.name}" if len(tasks) > 1 else name, []).append(history)
    networks = {data: _networks(group) for data, group in groups.items()}
    if labels is not None:
        networks = _labelled(networks, labels)
    return {data: sorted(group, key=lambda n: n.scheme != "euler") for data, group in networks.items()}


def printed_error(network: NetworkRuns) -> float | None:
    """Return the paper's error for a network, data set and kind of training."""
    config = network.config
    strategy = "Original" if config.recipe.stochastic_depth is None else "Stochastic depth"
    for row in (*CIFAR, *STOCHASTIC, *IMAGENET):
        wanted = (row.name, row.dataset, row.strategy)
        if config.scheme is None and wanted == (config.model, config.data, strategy):
            return row.error
    return None


def _labelled(networks: dict[str, list[NetworkRuns]], labels: Sequence[str]) -> dict[str, list[NetworkRuns]]:
    known = [network.label for group in networks.values() for network in group]
    if len(labels) != len(known) or len(set(labels)) != len(labels):
        raise UserError(
            f"labels {', '.join(labels)}: expected {len(known)} different ones, one for each of {', '.join(known)}"
        )
    names = iter(labels)
    return {
        data: [dataclasses.replace(network, label=next(names)) for network in group] for data, group in networks.items()
    }


def _networks(histories: Sequence[RunHistory]) -> list[NetworkRuns]:
    groups: dict[str, list[RunHistory]] = {}
    for history in histories:
        groups.setdefault(repr(_without_seed(history.config)), []).append(history)
    names = [write_label(group[0].config.label._replace(kwargs={})) for group in groups.values()]
    labels = []
    for name, group in zip(names, groups.values(), strict=True):
        alike = [other[0].config for n, other in zip(names, groups.values(), strict=True) if n == name]
        labels.append(name + _distinction(group[0].config, alike))
    return [NetworkRuns(label, tuple(group)) for label, group in zip(labels, groups.values(), strict=True)]


def _distinction(config: TrainConfig, alike: Sequence[TrainConfig]) -> str:
    """Return the settings that distinguish runs of the same network."""
    plain = _without_seed(config)
    pairs = [pair for other in map(_without_seed, alike) for pair in ((plain, other), (other, plain))]  # one may extend
    fields = {difference.split(" = ")[0] for one, other in pairs for difference in one.differences(other)}
    values = dataclasses.asdict(config) | {f"recipe.{k}": v for k, v in dataclasses.asdict(config.recipe).items()}
    settings = [f"{name.removeprefix('recipe.')}={values[name]}" for name in sorted(fields)]
    return f" ({', '.join(settings)})" if settings else ""


def _without_seed(config: TrainConfig) -> TrainConfig:
    plain = {*INCIDENTAL, *FINGERPRINTS, "network"}
    fresh: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(TrainConfig) if f.name in plain}
    return dataclasses.replace(config, seed=0, **fresh)


def short_names(places: Sequence[str]) -> list[str]:
    """Shorten paths to their last parts, as many as keep them distinct."""
    parts = [Path(place).parts if Path(place).exists() or Path(place).is_absolute() else (place,) for place in places]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(places)
