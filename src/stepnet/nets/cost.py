"""What a network costs: parameters, multiply-adds, activation memory. Computed from shapes only.

The network runs once in training mode on the meta device, where tensors have a shape and no values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from stepnet.nets.model_registry import create_model
from stepnet.nets.network import Network
from stepnet.nets.network_steps import steps_by_stage
from stepnet.nets.options import ModelOptions
from stepnet.nets.replay import storage

BATCH = 128  # large, so that what is saved once per batch, such as statistics, adds little per image


@dataclass(frozen=True)
class Profile:
    """The cost of a network; all but the parameters are for one image."""

    parameters: int
    multiply_adds: int  # of convolutions and matrix products, in the forward pass
    activation_bytes: int  # what the forward pass keeps for the backward pass
    steps: int = 0  # in all stages
    own_steps: int = 0  # those taken by the scheme, not by its starter or a transition


class Flops(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sum torch's formulas (`torch.utils.flop_counter`) over all operations in a `with` block.

    `FlopCounterMode` does the same module by module. On the meta device torch computes the shapes of common operations
    in Python, through many others; the rules in `_SHAPES` make a listing of all networks several times faster.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        rule = _SHAPES.get(func)
        if rule is not None and args[0].is_meta:
            return rule(args[0])
        out = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out


def _batch_norm(u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output, and the mean and deviation of each channel, which are saved for the gradient."""
    return torch.empty_like(u), u.new_empty(u.shape[1]), u.new_empty(u.shape[1])


_SHAPES: dict[Any, Callable[[Tensor], Any]] = {
    torch.ops.aten.native_batch_norm.default: _batch_norm,
    torch.ops.aten.relu.default: torch.empty_like,
    torch.ops.aten.normal_.default: lambda u: u,
    torch.ops.aten.uniform_.default: lambda u: u,
}


def saved_bytes(model: nn.Module, *inputs: object) -> int:
    """Return the bytes that one call saves for the backward pass, without parameters and buffers."""
    persistent = {storage(tensor) for tensor in (*model.parameters(), *model.buffers())}
    saved: dict[int, Tensor] = {}  # references, since the identifier of a freed storage may be reused

    def note(tensor: Tensor) -> Tensor:
        saved[storage(tensor)] = tensor
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        model(*inputs)
    return sum(tensor.untyped_storage().nbytes() for address, tensor in saved.items() if address not in persistent)


def profile(model: nn.Module, in_channels: int = 3, image_size: int = 32) -> Profile:
    """Return the cost of a network on the meta device; for a language model, with `image_size` tokens."""
    inputs = torch.empty(BATCH, in_channels, image_size, image_size, device="meta")
    if hasattr(model, "context"):
        inputs = torch.empty(BATCH, image_size, dtype=torch.long, device="meta")
    parameters = sum(p.numel() for p in model.parameters())
    with Flops() as counter:
        saved = saved_bytes(model.train(), inputs)
    return Profile(parameters, counter.total // 2 // BATCH, saved // BATCH, *_steps(model))


def _steps(model: nn.Module) -> tuple[int, int]:
    """Count the steps of a network, and those that its scheme itself takes."""
    steps = [step for stage in steps_by_stage(model) for step in stage]
    return len(steps), sum(step.scheme.name == step.network_scheme.name for step in steps)


def on_meta(name: str, **options: Unpack[ModelOptions]) -> Network:
    """Build a registered network on the meta device, which is fast for any size."""
    with torch.device("meta"), Flops():
        return create_model(name, **options)
