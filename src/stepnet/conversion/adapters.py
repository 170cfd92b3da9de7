"""Blocks that we know how to split: branch, shortcut, and the activation after the sum.

    B(u) = after(shortcut(u) + branch(u))

A split block lets the scheme act where the mathematics wants it, before the activation, and tells the projected input
`P x` of a block that changes the shape: the past of the next step, as in LM-ResNet. A block class is known by its
import path, so that none of the libraries has to be imported; `split_block` states one of your own, and blocks whose
layers are called as in the common CIFAR ResNets are tried. What is written here is not trusted: `convert` compares the
split with the block itself on the example, and takes the block whole when they differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.errors import UserError

FUNCTION = "()"  # ends the name of a function in a chain of layers


@dataclass(frozen=True)
class Split:
    """A block as chains of its own submodules, by attribute; an attribute that is None is passed over.

    `relu()` is a function of `torch.nn.functional`, for blocks that have no module for it.
    """

    branch_path: tuple[str, ...]
    shortcut_path: tuple[str, ...]
    after_path: tuple[str, ...]

    def branch(self, block: nn.Module, u: Tensor) -> Tensor:
        """`f(u)`."""
        return _through(block, self.branch_path, u)

    def shortcut(self, block: nn.Module, u: Tensor) -> Tensor:
        """`u`, or `P u` where the block changes the shape."""
        return _through(block, self.shortcut_path, u)

    def after(self, block: nn.Module, u: Tensor) -> Tensor:
        """The activation that follows the sum."""
        return _through(block, self.after_path, u)

    def whole(self, block: nn.Module, u: Tensor) -> Tensor:
        """`B(u)`, put together again: what the block itself must give."""
        return self.after(block, self.shortcut(block, u) + self.branch(block, u))

    def projects(self, block: nn.Module) -> bool:
        """Whether the shortcut is more than the identity."""
        layers = (getattr(block, name, None) for name in self.shortcut_path)
        return any(layer is not None and not _is_identity(layer) for layer in layers)


def split_block(block: type[nn.Module], *, branch: str, shortcut: str, activation: str = "") -> None:
    """State how a block class of your own is split, each part a chain of its attributes in the order of their calls:

    split_block(BasicBlock, branch="conv1 bn1 relu() conv2 bn2", shortcut="shortcut", activation="relu()")
    """
    split = _split(branch, shortcut, activation)
    for name in (*split.branch_path, *split.shortcut_path, *split.after_path):
        if name.endswith(FUNCTION) and not hasattr(F, name.removesuffix(FUNCTION)):
            raise UserError(f"{name!r}: torch.nn.functional has no such function; an attribute is written without ()")
    KNOWN[_path(block)] = split


def split_of(block: nn.Module) -> Split | None:
    """How to split this block, if the class from which it has its `forward` is one that we know."""
    for cls in type(block).__mro__:
        if "forward" in vars(cls):
            return KNOWN.get(_path(cls))
    return None


def likely_splits(block: nn.Module) -> list[Split]:
    """How a block of an unknown class may be split, by what its layers are called."""
    layers = 3 if hasattr(block, "conv3") else 2
    names = [f"{kind}{n}" for n in range(1, layers + 1) for kind in ("conv", "bn")]
    if not all(isinstance(getattr(block, name, None), nn.Module) for name in names):
        return []
    activations = [name for name in ("relu", "act", "activation") if isinstance(getattr(block, name, None), nn.Module)]
    shortcuts = [name for name in ("shortcut", "downsample") if hasattr(block, name)]
    pairs = [f"conv{n} bn{n}" for n in range(1, layers + 1)]
    return [
        _split(f" {act} ".join(pairs), shortcut, act)
        for act in (*activations, f"relu{FUNCTION}")
        for shortcut in (*shortcuts, "")
    ]


def _is_identity(layer: object) -> bool:
    return isinstance(layer, nn.Identity) or (isinstance(layer, nn.Sequential) and not len(layer))


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _through(block: nn.Module, path: tuple[str, ...], u: Tensor) -> Tensor:
    for name in path:
        if name.endswith(FUNCTION):
            u = getattr(F, name.removesuffix(FUNCTION))(u)
            continue
        layer = getattr(block, name, None)
        if layer is not None:
            u = layer(u)
    return u


def _split(branch: str, shortcut: str, after: str) -> Split:
    return Split(tuple(branch.split()), tuple(shortcut.split()), tuple(after.split()))


KNOWN = {
    "torchvision.models.resnet.BasicBlock": _split("conv1 bn1 relu conv2 bn2", "downsample", "relu"),
    "torchvision.models.resnet.Bottleneck": _split("conv1 bn1 relu conv2 bn2 relu conv3 bn3", "downsample", "relu"),
    "torchvision.models.regnet.ResBottleneckBlock": _split("f", "proj", "activation"),
    "timm.models.resnet.BasicBlock": _split(
        "conv1 bn1 drop_block act1 aa conv2 bn2 se drop_path", "downsample", "act2"
    ),
    "timm.models.resnet.Bottleneck": _split(
        "conv1 bn1 act1 conv2 bn2 drop_block act2 aa conv3 bn3 se drop_path", "downsample", "act3"
    ),
    "timm.models.regnet.Bottleneck": _split("conv1 conv2 se conv3 drop_path", "downsample", "act3"),
    "timm.models.senet.Bottleneck": _split("conv1 bn1 relu conv2 bn2 relu conv3 bn3 se_module", "downsample", "relu"),
    "timm.models.senet.SEResNetBlock": _split("conv1 bn1 relu conv2 bn2 se_module", "downsample", "relu"),
    "timm.models.byobnet.BasicBlock": _split("conv1_kxk attn conv2_kxk attn_last drop_path", "shortcut", "act"),
    "timm.models.byobnet.BottleneckBlock": _split(
        "conv1_1x1 conv2_kxk conv2b_kxk attn conv3_1x1 attn_last drop_path", "shortcut", "act"
    ),
    "timm.models.byobnet.DarkBlock": _split("conv1_1x1 attn conv2_kxk attn_last drop_path", "shortcut", "act"),
    "timm.models.byobnet.EdgeBlock": _split("conv1_kxk attn conv2_1x1 attn_last drop_path", "shortcut", "act"),
    "timm.models.byobnet.SelfAttnBlock": _split(
        "conv1_1x1 conv2_kxk self_attn post_attn conv3_1x1 drop_path", "shortcut", "act"
    ),
    "transformers.models.regnet.modeling_regnet.RegNetXLayer": _split("layer", "shortcut", "activation"),
    "transformers.models.regnet.modeling_regnet.RegNetYLayer": _split("layer", "shortcut", "activation"),
    "transformers.models.resnet.modeling_resnet.ResNetBasicLayer": _split("layer", "shortcut", "activation"),
    "transformers.models.resnet.modeling_resnet.ResNetBottleNeckLayer": _split("layer", "shortcut", "activation"),
}
