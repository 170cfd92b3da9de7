"""Build the network of a config, one of ours or a converted one (`timm/…`), and its optimiser."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from stepnet.conversion import check_own_name
from stepnet.data import Data, Text
from stepnet.errors import UserError, check_known
from stepnet.exchange import read_model
from stepnet.nets import (
    classifier_names,
    create_model,
    is_coefficient,
    list_models,
    load_weights,
    model_entry,
    split_tag,
    vectors,
)
from stepnet.training.config import TrainConfig, read_label
from stepnet.training.depth_transfer import Multiples, at_rule, block_parameters, multiples_of
from stepnet.training.recipes import Recipe

EPS = 1e-8  # default of Adam and its variants in torch


def build_network(config: TrainConfig, data: Data) -> nn.Module:
    """Return the network with initial weights that depend on (model, seed), or with the weights that the config names.

    With `start_like`, it takes the initial weights of that model where names and shapes agree.
    """
    network = _seeded(config, data)
    if config.weights is not None:
        opened = read_model(config.weights).weights
        load_weights(network, opened, new_head=True, where=f"the weights {config.weights}")
    if config.start_like is None:
        return network
    name, scheme, kwargs = label = read_label(config.start_like)
    if label != config.label:
        first = replace(config, model=name, scheme=scheme, model_kwargs=kwargs, start_like=None, memory=None)
        reference, initial = build_network(first, data).state_dict(), network.state_dict()
        shared = {n: t for n, t in reference.items() if n in initial and initial[n].shape == t.shape}
        network.load_state_dict(initial | shared)
    return network


def build_optimizer(recipe: Recipe, network: nn.Module) -> torch.optim.Optimizer:
    """Return the recipe's optimiser; without `decay_vectors`, norms, biases and k have no weight decay.

    With `tuned_at_depth`, the learning rate, eps and decay of the blocks follow the rule for depth.
    """
    decay = 0.0 if recipe.running_cost == "kinetic" else recipe.weight_decay
    spared = set() if recipe.decay_vectors else vectors(network)
    head = classifier_names(network)
    ruled = multiples_of(network, recipe.tuned_at_depth, recipe.depth_rule, recipe.optimizer)
    blocks = set() if recipe.tuned_at_depth is None else block_parameters(network)
    members: dict[tuple[float, float, float], list[nn.Parameter]] = {}  # by weight decay, learning rate, eps
    for name, parameter in network.named_parameters():
        multiple = recipe.k_lr if is_coefficient(name) else recipe.head_lr if name in head else 1.0
        multiples = ruled if id(parameter) in blocks else Multiples()
        key = (0.0 if name in spared else decay * multiples.weight_decay, multiple * multiples.lr, multiples.eps)
        members.setdefault(key, []).append(parameter)
    groups: list[dict[str, object]] = [
        {"params": parameters, "weight_decay": wd, "multiple": multiple} | ({} if eps == 1 else {"eps": EPS * eps})
        for (wd, multiple, eps), parameters in members.items()
    ]
    if not groups:
        raise UserError(f"a {type(network).__name__} without parameters: expected a network that can be trained")
    known = {name.lower(): kind for name, kind in vars(torch.optim).items() if isinstance(kind, type)}
    check_known("optimizer", recipe.optimizer, known.keys() - {"optimizer", "lbfgs", "sparseadam"})
    kind = known[recipe.optimizer]
    options: dict[str, Any] = (
        {"momentum": recipe.momentum, "nesterov": recipe.nesterov} if kind is torch.optim.SGD else {}
    )
    if "betas" in inspect.signature(kind).parameters:
        options["betas"] = recipe.betas
    return kind(groups, lr=recipe.lr, **options)  # type: ignore[no-any-return]


def _seeded(config: TrainConfig, data: Data) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return _foreign(config, data) if "/" in config.model else _own(config, data)


def _own(config: TrainConfig, data: Data) -> nn.Module:
    check_own_name(config.label.model, list_models())
    recipe = config.recipe
    options: dict[str, Any] = {"num_classes": data.num_outputs, **_input_options(config.model, data)}
    optional = {"memory": config.memory, "stochastic_depth": _gates(recipe)}
    options |= {name: value for name, value in optional.items() if value is not None} | config.label.options
    network: nn.Module = create_model(config.model, pretrained=config.pretrained, **options)
    return _synchronised(_at_rule(network, recipe), config)


def _input_options(model: str, data: Data) -> dict[str, Any]:
    """Return the options that depend on the data; raise for images with a language model, or text with another."""
    takes = model_entry(split_tag(model)[0]).takes
    if takes == "tokens":
        if not isinstance(data.train, Text):
            raise UserError(f"{model} takes text, but {data.name} holds images: give --data shakespeare or a text file")
        return {"context": data.train.context}
    if isinstance(data.train, Text):
        raise UserError(f"{model} takes images, and {data.name} is text: use a GPT such as gpt12x48")
    return {"in_channels": data.in_channels}


def _gates(recipe: Recipe) -> dict[str, Any] | None:
    """Return the options of stochastic depth."""
    if recipe.stochastic_depth is None:
        return None
    return {"survival": recipe.stochastic_depth, "mode": recipe.stochastic_mode}


def _foreign(config: TrainConfig, data: Data) -> nn.Module:
    recipe = config.recipe
    for name, value, why in (
        ("stochastic_depth", recipe.stochastic_depth, "has no steps"),
        ("running_cost", recipe.running_cost, "has no steps"),
        ("memory", config.memory, "must be converted to recompute its blocks"),
        ("tuned_at_depth", recipe.tuned_at_depth, "has no steps"),
    ):
        if config.scheme is None and value not in (None, "weight_decay"):
            advice = "add --scheme euler, which leaves the network as it is"
            raise UserError(f"{name} = {value!r}: {config.model!r} {why}; {advice}")
    if config.model_kwargs:
        raise UserError(f"model_kwargs are for stepnet's own networks, not {config.model!r}: leave them out")
    from stepnet.conversion import convert, load_foreign

    # Before the conversion, which gives batch norms separate statistics for each evaluation in a step.
    network = load_foreign(
        config.model, num_classes=data.num_outputs, in_channels=data.in_channels, pretrained=config.pretrained
    )
    network = _synchronised(network, config)
    if config.scheme is None:
        return network
    example = torch.zeros(2, data.in_channels, data.image_size, data.image_size)
    network = convert(
        network,
        config.scheme,
        example,
        inplace=True,
        init="identity" if config.pretrained else "paper",
        memory=config.memory or "stored",
        stochastic_depth=_gates(recipe),
    )
    return _at_rule(network, recipe)


def _at_rule(network: nn.Module, recipe: Recipe) -> nn.Module:
    """Return the network with the step size of the recipe's rule for depth, if it has one."""
    if recipe.tuned_at_depth is None:
        return network
    return at_rule(network, recipe.tuned_at_depth, recipe.depth_rule, recipe.optimizer)[0]


def _synchronised(network: nn.Module, config: TrainConfig) -> nn.Module:
    if not config.sync_bn:
        return network
    return nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call, no-any-return]
