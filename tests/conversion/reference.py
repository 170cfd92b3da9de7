"""The LM step `u_{n+1} = B(u_n) + k (u_{n-1} - u_n)` by hooks on an unconverted network, with every state cloned.

Of `stepnet.conversion` it takes only where a block has its state: nothing here can overwrite a past, so a converted
network that agrees with it keeps the right one. Where a block is split, the term is added to the result of the block's
last sum of two tensors, which is found by watching torch's functions while the block runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from stepnet.conversion import Conversion
from stepnet.conversion.places import state_in, with_state

SUMS = (torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__iadd__, Tensor.__radd__)
SHORTCUTS = ("downsample", "proj", "shortcut", "skip", "skipbn", "conv_shortcut")  # in the order of their calls


def lm_reference(model: nn.Module, converted: nn.Module, k: float) -> nn.Module:
    """A copy of `model` in which hooks add the LM term to the blocks that are steps in the `converted` one."""
    model = copy.deepcopy(model)
    conversion: Conversion = converted.step_conversion  # type: ignore[assignment]
    for stage in conversion.stages:
        activated = [name for name in stage.split if any("before the activation" in note for note in stage.notes)]
        states: list[Tensor] = []  # u_0, u_1, … of the forward under way
        for n, name in enumerate(stage.blocks):
            role = converted.get_submodule(name).step_role
            _hook(model.get_submodule(name), role, n, states, k, name in stage.split, name in activated)
    return model


def _hook(block: nn.Module, role: Any, n: int, states: list[Tensor], k: float, split: bool, activated: bool) -> None:
    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if n == 0:
            states.clear()
        states.append(role.argument.of(args, kwargs).clone())

    def term() -> Tensor:
        return k * (states[-2] - states[-1])

    def add_to_output(module: nn.Module, args: Any, output: Any) -> Any:
        return with_state(output, state_in(output, role.result) + term(), role.result)

    block.register_forward_pre_hook(record, with_kwargs=True)
    if n == 0:
        for name in SHORTCUTS if split else ():
            shortcut = getattr(block, name, None)
            if shortcut is not None and not isinstance(shortcut, nn.Identity):
                shortcut.register_forward_hook(lambda module, args, output: states.__setitem__(0, output.clone()))
    elif activated:
        _alter_last_sum(block, lambda total: total + term())
    else:
        block.register_forward_hook(add_to_output, prepend=True)  # before those that record outputs


class _Sums(TorchFunctionMode):
    """Counts the sums of two tensors, and alters one of them."""

    def __init__(self, which: int | None = None, alter: Callable[[Tensor], Tensor] = torch.clone) -> None:
        super().__init__()
        self.which, self.alter, self.count = which, alter, 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function in SUMS and isinstance(args[1], Tensor) and args[0].shape == args[1].shape:
            self.count += 1
            if self.count == self.which:
                with torch._C.DisableTorchFunction():
                    return self.alter(result)
        return result


def _alter_last_sum(block: nn.Module, alter: Callable[[Tensor], Tensor]) -> None:
    forward, under_way = block.forward, []

    def altered(*args: Any, **kwargs: Any) -> Any:
        if under_way:
            return forward(*args, **kwargs)
        under_way.append(True)
        with _Sums() as sums:
            forward(*(arg.clone() for arg in args), **kwargs)
        with _Sums(sums.count, alter):
            result = forward(*args, **kwargs)
        under_way.clear()
        return result

    block.forward = altered  # type: ignore[method-assign]
