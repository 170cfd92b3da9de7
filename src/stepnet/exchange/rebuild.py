"""Build the network of a description, and fill it with weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from stepnet.conversion import (
    RECORD,
    check_file_options,
    convert,
    convert_again,
    is_foreign,
    lay_out,
    load_foreign,
    remember_conversion,
)
from stepnet.errors import UserError, first_line
from stepnet.exchange.model_description import ConversionRecord, ModelDescription, read_record
from stepnet.nets import create_model, shape_of
from stepnet.tensors import Tensors, first_difference


def rebuild(description: ModelDescription, weights: Tensors, where: object) -> nn.Module:
    """Return the network with these weights, in evaluation mode; raise if the description does not fit them.

    It is first built on the meta device, so that an untrusted description is compared with the tensors in the file
    before memory is allocated.
    """
    if description.built_elsewhere:
        raise UserError(f"{where} holds a {description.model}, which stepnet cannot build: load(…, model=your network)")
    with torch.random.fork_rng(devices=[]):
        network = _try_build(replace(description, conversion=None), weights, where)
        if description.conversion is not None:  # a conversion runs the network, which needs memory
            lay_out(network, description.conversion.layout, len(weights))
            original = {name: weights[name] for name in network.state_dict() if name in weights}
            _check_same(network, description, original, where)
            network = _try_build(description, weights, where, "cpu")
        _check_same(network, description, weights, where)
        check_finite(weights, where)
        # Copied, since a file's bytes may not be aligned as torch's memory is, and kernels that depend on the alignment
        # would round differently from the network that was saved.
        network.load_state_dict({name: tensor.clone() for name, tensor in weights.items()}, assign=True)
        if any(t.is_meta for t in (*network.parameters(), *network.buffers())):  # buffers that are not saved
            network = _build(description)
            network.load_state_dict(weights)
    return network.eval()


def fill(
    network: nn.Module, description: ModelDescription, weights: Tensors, where: object, example: Any = None
) -> nn.Module:
    """Load the weights into a network; convert it first if the saved one was converted."""
    if description.conversion is not None and not hasattr(network, RECORD):
        restore_conversion(network, description.conversion, _image(description) if example is None else example)
    _check_same(network, description, weights, where)
    check_finite(weights, where)
    network.load_state_dict(weights)
    return network.eval()


def fitted_options(model: str, weights: Tensors) -> dict[str, Any]:
    """Return the numbers of classes and channels that the weights of a model have."""
    return dict(shape_of(weights, _try_build(ModelDescription(model=model), weights, model)))


def _try_build(description: ModelDescription, weights: Tensors, where: object, device: str = "meta") -> nn.Module:
    try:
        with torch.device(device), at_most(len(weights)):
            return _build(description)
    except UserError as error:
        raise UserError(f"{where} cannot be built from its description: {error}") from None
    except Exception as error:  # another library may raise anything for untrusted options
        raise UserError(f"{where} cannot be built from its description: {first_line(error)}") from None


@contextmanager
def at_most(tensors: int) -> Iterator[None]:
    """Stop building a network with far more parameters than the file has tensors, such as 10**9 layers."""
    left = 1000 + 4 * tensors  # some layers are built and replaced

    def count(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise UserError(f"it describes a network of far more layers than the {tensors} tensors in the file")

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def check_finite(weights: Mapping[str, torch.Tensor], where: object) -> None:
    """Raise for weights with infinity or NaN."""
    for name, tensor in weights.items():
        values = tensor.float() if tensor.itemsize == 1 else tensor  # isfinite does not support eight bits
        if tensor.is_floating_point() and not bool(values.isfinite().all()):
            raise UserError(f"{where}: {name!r} holds values that are not finite, and the network would give NaN")


def _check_same(network: nn.Module, description: ModelDescription, weights: Tensors, where: object) -> None:
    difference = first_difference(network.state_dict(), weights)
    if difference is not None:
        raise UserError(f"{where} holds weights of another network than {description.model!r}: {difference}")


def _build(description: ModelDescription) -> nn.Module:
    name, options = description.model, dict(description.options)
    if "pretrained" in options:
        raise UserError("it asks for pretrained weights, which a model file must not")
    network: nn.Module
    if not is_foreign(name):
        network = create_model(name, **options)
        return network
    check_file_options(name, options)
    network = load_foreign(name, **options)
    if description.conversion is not None:
        restore_conversion(network, description.conversion, _image(description))
    return network


def restore_conversion(network: nn.Module, done: ConversionRecord, example: Any = None) -> None:
    """Convert a network as its record describes."""
    lay_out(network, done.layout)
    blocks = None if done.blocks is None else list(done.blocks)
    options: dict[str, Any] = {"blocks": blocks, "dt": done.dt, "k_bound": done.k_bound}
    options["stochastic_depth"] = done.stochastic_depth
    if done.stages and done.split is not None:
        convert_again(network, done.scheme, done.stages, done.split, example, **options)
    else:
        convert(network, done.scheme, example, inplace=True, **options)
    now = read_record(getattr(network, RECORD))
    if done.layout:
        remember_conversion(network, {**getattr(network, RECORD), "layout": {k: [*v] for k, v in done.layout.items()}})
    if done.stages and (now.stages, now.split) != (done.stages, done.split if done.split is not None else now.split):
        raise UserError(f"its blocks became other steps than when it was saved: {now}, expected {done}")


def _image(description: ModelDescription) -> torch.Tensor | None:
    how = description.preprocessing
    return None if how is None else torch.zeros(2, how.channels, how.image_size, how.image_size)
