"""Weights of one network for another: a plain network's for its LM version and back, a trained body with a new head."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.tensors import first_difference


def load_weights(
    network: nn.Module, weights: Mapping[str, Tensor], *, new_head: bool = False, where: object = "the weights"
) -> list[str]:
    """Fill a network; the names that kept or lost something, beside the weights that both have.

    A `k_n` that the weights lack is set to 0: the network then computes what the plain one did. A `k_n` that the
    network lacks is left out. With `new_head`, a classifier for other classes keeps the network's own weights. Any
    other difference is refused, with its name.
    """
    own = network.state_dict()
    ours = {name for name in own if is_coefficient(name)}
    theirs = {name for name in weights if is_coefficient(name)}
    fresh = ours - theirs
    dropped = theirs - ours
    head = _last_linear(network) if new_head else set()
    heads = {name for name in head if name in own and name in weights and own[name].shape != weights[name].shape}
    kept = {name: tensor for name, tensor in own.items() if name not in fresh | heads}
    given = {name: tensor for name, tensor in weights.items() if name not in dropped | heads}
    difference = first_difference(kept, given)
    if difference is not None:
        raise UserError(f"{where} are of another network than {type(network).__name__}: {difference}")
    zeros = {name: torch.zeros_like(own[name]) for name in fresh}
    network.load_state_dict({**own, **given, **zeros})
    return sorted(fresh | dropped | heads)


def is_coefficient(name: str) -> bool:
    """Whether a parameter is a scheme's `k`: `stages.0.k` in our networks, `layer1.0.step_k` in converted ones."""
    return name.rpartition(".")[2] in ("k", "step_k")


def shape_of(weights: Mapping[str, Tensor]) -> dict[str, int]:
    """Classes and channels of the weights of one of our networks."""
    stems = [name for name in ("stem.weight", "stem.0.weight") if name in weights]
    shape = {"num_classes": weights["head.weight"].shape[0]} if "head.weight" in weights else {}
    return shape | ({"in_channels": weights[stems[0]].shape[1]} if stems else {})


def _last_linear(network: nn.Module) -> set[str]:
    names = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    return {f"{names[-1]}.weight", f"{names[-1]}.bias"} if names else set()
