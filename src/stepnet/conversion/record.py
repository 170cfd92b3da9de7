"""What it takes to convert a network again, kept with it; of transformers, in its configuration, which is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from torch import nn

from stepnet.conversion.summary import Conversion
from stepnet.nets import Bound, StepSizes, StochasticDepth

RECORD = "stepnet_conversion"  # the attribute of the network, and the key in transformers' config.json


def record_of(
    done: Conversion, dt: StepSizes, bound: Bound | None, blocks: object, stochastic: StochasticDepth | None = None
) -> dict[str, Any]:
    """The conversion as JSON holds it."""
    several = blocks if isinstance(blocks, Sequence) and not isinstance(blocks, str) else [blocks]
    names = [each.__name__ if isinstance(each, type) else str(each) for each in several]
    options = {} if stochastic is None else asdict(stochastic)
    options.pop("depth", None)  # that is the number of steps
    return {
        "scheme": done.scheme,
        "dt": dt if isinstance(dt, int | float) else [[*own] for own in dt],
        "stages": [list(stage.blocks) for stage in done.stages],
        "split": [name for stage in done.stages for name in stage.split],
        "blocks": None if blocks is None else names,
        "k_bound": None if bound is None else [bound.low, bound.high],
        **({"stochastic_depth": options} if options else {}),
    }


def remember_conversion(network: nn.Module, record: dict[str, Any]) -> None:
    """Keep the record with the network, and in the configuration that `save_pretrained` writes."""
    setattr(network, RECORD, record)
    if hasattr(getattr(network, "config", None), "to_json_string"):
        setattr(network.config, RECORD, record)


def forget_conversion(network: nn.Module) -> None:
    """A network that was reverted is plain, and its configuration says so."""
    for holder in (network, getattr(network, "config", None)):
        if hasattr(holder, RECORD):
            delattr(holder, RECORD)
