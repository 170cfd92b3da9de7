"""Load the weights of one network into another: a plain network and its LM version, a trained body with a new head.

Also `stepnet.coefficients`: the learned `k_n` of a network, by layer.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stepnet.arguments import checked
from stepnet.errors import UserError
from stepnet.nets.bounds import FREE, Bound, CoefficientLayout, Coefficients
from stepnet.nets.network_steps import Stepped
from stepnet.tensors import first_difference

STEP_MIXING = "step_mixing_"  # begins the name of a coefficient in a block that `convert` made a step


@checked
def load_weights(
    network: nn.Module, weights: Mapping[str, Tensor], *, new_head: bool = False, where: object = "the weights"
) -> list[str]:
    """Load weights into a network; return the names that differ between them.

    A `k_n` that the weights lack is set to 0: the network then computes what the plain one did. A `k_n` that the
    network lacks is left out. With `new_head`, a classifier of another shape stays as the network has it. Any other
    difference raises an error that names it.
    """
    state = network.state_dict()
    ours = {name for name in state if is_coefficient(name)}
    theirs = {name for name in weights if is_coefficient(name)}
    fresh = ours - theirs
    dropped = theirs - ours
    heads = _other_heads(network, state, weights) if new_head else set()
    expected = {name: tensor for name, tensor in state.items() if name not in fresh | heads}
    loaded = {name: tensor for name, tensor in weights.items() if name not in dropped | heads}
    difference = first_difference(expected, loaded)
    if difference is not None:
        raise UserError(f"{where} are of another network than {type(network).__name__}: {difference}")
    initial = {name: _free(network, name, weights, state[name]) for name in fresh}
    network.load_state_dict({**state, **loaded, **initial})
    return sorted(fresh | dropped | heads)


def _other_heads(network: nn.Module, state: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> set[str]:
    """Return the classifier's tensors whose shape differs, or that the network lacks."""
    head = classifier_names(network) or {"head.weight", "head.bias"}
    return {name for name in head & weights.keys() if name not in state or state[name].shape != weights[name].shape}


def is_coefficient(name: str) -> bool:
    """Whether a parameter is a scheme's coefficient.

    That is `stages.0.k` or `stages.0.mixing.V` in our networks, `layer1.0.step_k` or `layer1.0.step_mixing_V` in
    converted ones.
    """
    module, _, last = name.rpartition(".")
    named = last.startswith(STEP_MIXING) or module.rpartition(".")[2] == "mixing"
    return named or last.removesuffix(FREE) in ("k", "step_k")


def vectors(model: nn.Module) -> set[str]:
    """Return the names of norms, biases and coefficients, which take no weight decay."""
    return {name for name, p in model.named_parameters() if p.ndim <= 1 or is_coefficient(name)}


def _free(network: nn.Module, name: str, weights: Mapping[str, Tensor], like: Tensor) -> Tensor:
    """Return the parameter for `k = 0`; under a bound, for the unbounded `k` of the weights if they have one."""
    if name + FREE in weights:
        raise UserError(f"{name} is bounded in the weights, not in the network: build it with their k_bound")
    module = network.get_submodule(name.rpartition(".")[0])
    if isinstance(module, Coefficients):
        return module.layout.at_euler()[name.rpartition(".")[2]].to(like)
    layout = getattr(module, "step_layout", None)
    if isinstance(layout, CoefficientLayout):
        return layout.at_euler()[name.rpartition(".")[2].removeprefix(STEP_MIXING)].to(like)
    k = weights.get(name.removesuffix(FREE), torch.zeros_like(like))
    bound = getattr(module, "bound", None) or getattr(getattr(module, "step_role", None), "bound", None)
    if not isinstance(bound, Bound):
        return k
    if not bool(((bound.low < k) & (k < bound.high)).all()):
        raise UserError(f"{name.removesuffix(FREE)} = {k.flatten().tolist()} does not lie in k_bound, {bound}")
    return bound.free(k)


def shape_of(weights: Mapping[str, Tensor], network: nn.Module) -> dict[str, int]:
    """Return `num_classes` and `in_channels` of weights, for a network of any."""
    ends = {"num_classes": (classifier(network), 0), "in_channels": (first_convolution(network), 1)}
    places = {key: (f"{end[0]}.weight", side) for key, (end, side) in ends.items() if end is not None}
    return {key: weights[name].shape[side] for key, (name, side) in places.items() if name in weights}


def classifier_names(network: nn.Module) -> set[str]:
    """Return the names of the classifier's parameters."""
    last = classifier(network)
    return set() if last is None else {f"{last[0]}.weight", f"{last[0]}.bias"}


def classifier(network: nn.Module) -> tuple[str, nn.Linear | nn.Embedding] | None:
    """Return the last linear layer and its name; for a language model with tied weights, the embedding."""
    kind = nn.Embedding if getattr(network, "tied_embedding", False) else nn.Linear
    layers = [(name, module) for name, module in network.named_modules() if isinstance(module, kind)]
    return layers[-1] if layers else None


def first_convolution(network: nn.Module) -> tuple[str, nn.Conv2d] | None:
    """Return the first convolution and its name."""
    layers = ((name, module) for name, module in network.named_modules() if isinstance(module, nn.Conv2d))
    return next(layers, None)


@checked
def coefficients(model: nn.Module) -> dict[str, float | list[float]]:
    """Return `k_n` by the name of its layer, in order of depth: a float, or a list with one for each channel.

    A named coefficient V has the key `stages.0.blocks.1:V`; a matrix is listed row by row.
    """
    ks: dict[str, float | list[float]] = {}
    for path, module in model.named_modules():
        if isinstance(module, Stepped):
            for name, k in module.named_coefficients():
                ks[f"{path}.{name}" if path else name] = k.detach().flatten().squeeze().tolist()
    return ks
