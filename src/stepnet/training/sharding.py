"""Sharded networks: every process holds a shard of each parameter (FSDP2, torch's `fully_shard`).

The parameters of a block are gathered while it is evaluated, forward and back, and its gradients are averaged into the
shares; the optimiser sees shares only. Coefficients are gathered with the root, for the whole pass: a step reads them
outside of its block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.nets import Stage, coefficients
from stepnet.tensors import Tensors


def shard(network: nn.Module, optimizer: torch.optim.Optimizer | None = None, **options: Any) -> nn.Module:
    """Shard a network in place over all processes, with the optimiser that has its parameters.

    `options` are those of `torch.distributed.fsdp.fully_shard`. `gather` gives the weights back.
    """
    from torch.distributed.fsdp import fully_shard  # takes a second to import

    check_shardable(network)
    before: dict[Tensor, str] = {parameter: name for name, parameter in network.named_parameters()}
    for block in shardable_blocks(network):
        fully_shard(block, **options)
    fully_shard(network, **options)
    if optimizer is not None:
        _shard_optimizer(optimizer, before, dict(network.named_parameters()))
    return network


def check_shardable(network: nn.Module) -> None:
    """Raise for networks whose results would differ, or that fail, when sharded."""
    for path, module in network.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise UserError(f"FSDP: {path!r} is a batch norm, whose statistics would differ; launch it without FSDP")
        roles = getattr(module, "step_roles", ())
        for memory in (getattr(module, "memory", "stored"), *(role.memory for role in roles)):
            if isinstance(memory, str) and memory != "stored":
                raise UserError(f"FSDP with memory={memory!r}: the weights of recomputed blocks are already freed; "
                                "leave --memory out, or launch it without FSDP")  # fmt: skip
    if hasattr(network, "draw"):
        raise UserError("FSDP with stochastic depth or noise: not supported; leave one of them out")


def shardable_blocks(network: nn.Module) -> Iterator[nn.Module | list[nn.Module]]:
    """Yield the blocks to shard; of a converted block its layers, since FSDP's hooks drop its past states."""
    for module in list(network.modules()):
        if isinstance(module, Stage):
            yield from module.blocks
        elif hasattr(module, "step_roles"):
            layers = [layer for layer in module.children() if any(True for _ in layer.parameters())]
            if layers:
                yield layers


def _shard_optimizer(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str], parts: Mapping[str, nn.Parameter]
) -> None:
    """Replace the optimiser's parameters and their state by shards."""
    from torch.distributed.tensor import distribute_tensor

    for group in optimizer.param_groups:
        group["params"] = [parts[names[whole]] for whole in group["params"]]
    for whole, kept in list(optimizer.state.items()):
        part: Any = parts[names[whole]]  # a DTensor
        del optimizer.state[whole]
        optimizer.state[part] = {
            key: distribute_tensor(value.to(part.device), part.device_mesh, part.placements)
            if isinstance(value, Tensor) and value.shape == whole.shape
            else value
            for key, value in kept.items()
        }


def gather(network: nn.Module, tensors: Mapping[str, Tensor] | None = None) -> Tensors:
    """Return the state dict of a network, or tensors named as its parameters, gathered on the CPU of the main process.

    Every process must call this; the others get nothing. For a network that is not sharded, return the tensors.
    """
    tensors = network.state_dict() if tensors is None else tensors
    if not is_sharded(network):
        return dict(tensors)
    whole = Tensors()
    for name, value in tensors.items():
        full = value.full_tensor() if hasattr(value, "full_tensor") else value
        if dist.get_rank() == 0:
            whole[name] = full.detach().cpu()
    return whole


def is_sharded(network: nn.Module) -> bool:
    """Whether a network was sharded by `shard`."""
    return hasattr(network, "unshard")


def coefficients_of(network: nn.Module) -> dict[str, float | list[float]]:
    """Return `stepnet.nets.coefficients` of a network; if it is sharded, every process must call this."""
    if is_sharded(network):
        network.unshard()  # type: ignore[operator]
    values = coefficients(network)
    reshard(network)
    return values


def reshard(network: nn.Module) -> None:
    """Free gathered parameters, after a forward pass without a backward pass."""
    for module in network.modules() if is_sharded(network) else ():
        if hasattr(module, "reshard"):
            module.reshard()  # type: ignore[operator]


def local(value: Tensor) -> Tensor:
    """Return the part of a tensor that this process holds."""
    part: Tensor = value.to_local() if hasattr(value, "to_local") else value
    return part
