"""The LM step `u_{n+1} = B(u_n) + k (u_{n-1} - u_n)` by hooks on an unconverted network, with every state cloned.

It shares no code with `stepnet.conversion`: nothing here can overwrite a past, so a converted network that agrees with
it keeps the right one.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from stepnet.conversion import Conversion

# The activation after the sum and how many of its calls come before, for the blocks in which it is split off.
FINAL_ACTIVATION = {
    "torchvision.models.resnet.BasicBlock": ("relu", 1),
    "torchvision.models.resnet.Bottleneck": ("relu", 2),
    "torchvision.models.regnet.ResBottleneckBlock": ("activation", 0),
    "timm.models.resnet.BasicBlock": ("act2", 0),
    "timm.models.resnet.Bottleneck": ("act3", 0),
    "timm.models.regnet.Bottleneck": ("act3", 0),
    "timm.models.senet.SEResNeXtBottleneck": ("relu", 2),
    "timm.models.senet.SEBottleneck": ("relu", 2),
    "timm.models.senet.SEResNetBottleneck": ("relu", 2),
    "timm.models.senet.SEResNetBlock": ("relu", 1),
    "timm.models.byobnet.BasicBlock": ("act", 0),
    "timm.models.byobnet.BottleneckBlock": ("act", 0),
    "timm.models.byobnet.SelfAttnBlock": ("act", 0),
    "transformers.models.regnet.modeling_regnet.RegNetYLayer": ("activation", 0),
    "transformers.models.resnet.modeling_resnet.ResNetBasicLayer": ("activation", 0),
    "transformers.models.resnet.modeling_resnet.ResNetBottleNeckLayer": ("activation", 0),
}


def final_activation(block: nn.Module) -> tuple[str, int]:
    """From the table; a block that convert split by itself has the usual names, and one after each convolution."""
    known = FINAL_ACTIVATION.get(f"{type(block).__module__}.{type(block).__qualname__}")
    if known is not None:
        return known
    attribute = next(name for name in ("act3", "act2", "relu", "act") if hasattr(block, name))
    path = [name for name, part in block.named_modules() if isinstance(part, nn.Conv2d) and name.startswith("conv")]
    return attribute, 0 if attribute in ("act3", "act2") else len(path) - 1


SHORTCUTS = ("downsample", "proj", "shortcut")


def lm_reference(model: nn.Module, conversion: Conversion, k: float) -> nn.Module:
    """A copy of `model` in which hooks add the LM term to the blocks that `conversion` names."""
    model = copy.deepcopy(model)
    for stage in conversion.stages:
        split = any("before the activation" in note for note in stage.notes)
        states: list[torch.Tensor] = []  # u_0, u_1, … of the forward under way
        for n, name in enumerate(stage.blocks):
            _hook(model.get_submodule(name), n, states, k, split)
    return model


def _hook(block: nn.Module, n: int, states: list[torch.Tensor], k: float, split: bool) -> None:
    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if n == 0:
            states.clear()
        u = args[0] if args else kwargs["hidden_states"]
        states.append(u.clone())

    def term() -> torch.Tensor:
        return k * (states[-2] - states[-1])

    def add_to_output(module: nn.Module, args: Any, output: Any) -> Any:
        if isinstance(output, torch.Tensor):
            return output + term()
        return (output[0] + term(), *output[1:])

    block.register_forward_pre_hook(record, with_kwargs=True)
    if not split:
        if n > 0:
            block.register_forward_hook(add_to_output, prepend=True)  # before those that record outputs
        return
    if n == 0:
        for name in SHORTCUTS:
            shortcut = getattr(block, name, None)
            if shortcut is not None and not isinstance(shortcut, nn.Identity):
                shortcut.register_forward_hook(lambda module, args, output: states.__setitem__(0, output.clone()))
        return
    attribute, before = final_activation(block)
    calls = {"made": 0}

    def restart(module: nn.Module, args: Any) -> None:
        calls["made"] = 0

    def add_before_activation(module: nn.Module, args: tuple[torch.Tensor]) -> Any:
        calls["made"] += 1
        return (args[0] + term(),) if calls["made"] == before + 1 else None

    block.register_forward_pre_hook(restart)
    getattr(block, attribute).register_forward_pre_hook(add_before_activation)
