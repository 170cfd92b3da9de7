"""The cost of a run's network, from its config alone."""

from __future__ import annotations

import dataclasses
from functools import cache

import torch

from stepnet.data import Data, get_data
from stepnet.errors import UserError
from stepnet.nets.profile import Flops, Profile, profile
from stepnet.training.build import build_network
from stepnet.training.config import TrainConfig


def cost(config: TrainConfig) -> Profile | None:
    """Parameters and multiply-adds of the network that a config asks for; None where it cannot be built here,
    for want of the data set that tells its classes or of another library."""
    same = dataclasses.replace(config, seed=0, start_like=None, out="")
    return _cost(same)


@cache
def _cost(config: TrainConfig) -> Profile | None:
    try:
        data = _data(config.data, config.data_root)
        with torch.device("meta"), Flops():
            network = build_network(config, data)
        return profile(network, data.in_channels, data.image_size)
    except (UserError, ImportError, RuntimeError):
        return None


@cache
def _data(name: str, root: str | None) -> Data:
    return get_data(name, root)
