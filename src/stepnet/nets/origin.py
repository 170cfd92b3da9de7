"""How a network was built: remembered with it, so that a file can tell how to build it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn

ATTRIBUTE = "step_origin"
Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Origin:
    """A name and the options that were given with it."""

    name: str
    options: Mapping[str, Any]

    def options_now(self, network: nn.Module) -> dict[str, Any]:
        """The options with what was changed since: `reset_classifier` gives a network other classes."""
        now = {name: getattr(network, name, None) for name in ("num_classes", "in_channels")}
        return {**self.options, **{name: value for name, value in now.items() if isinstance(value, int)}}


def remember_origin(network: Model, name: str, options: Mapping[str, Any]) -> Model:
    """Tell a network how it was built."""
    setattr(network, ATTRIBUTE, Origin(name, dict(options)))
    return network


def origin_of(network: nn.Module) -> Origin | None:
    """How the network was built, if it was told."""
    origin = getattr(network, ATTRIBUTE, None)
    return origin if isinstance(origin, Origin) else None
