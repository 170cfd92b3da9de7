"""The base of all networks: input checks, features, memory modes, and a head that can be replaced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, TypedDict, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.arguments import Count, CountFromZero, checked
from stepnet.errors import UserError
from stepnet.nets.blocks import initialise
from stepnet.nets.march import Memory
from stepnet.nets.stage import Stage
from stepnet.nets.trajectories import trajectory
from stepnet.nets.weights import vectors
from stepnet.schemes import is_traced


class FeatureInfo(TypedDict):
    """The output of a stage, described as in timm."""

    num_chs: int
    reduction: int  # the product of the strides up to its end
    module: str


class Network(nn.Module, ABC):
    """The base of all networks: input checks, features, and a head that can be replaced."""

    reduction: int = 1  # the product of all strides
    steps_per_block: int = 0  # for the blocks counted by `depths`; 0 if a network has no such option
    initial_exponent: float = 0.0  # p, if the initial f of a network of L blocks scales as L^-p
    in_channels: int
    num_classes: int
    num_features: int = 0
    feature_info: Sequence[FeatureInfo] = ()
    head: nn.Module

    @checked
    def __init__(self, num_classes: CountFromZero, in_channels: Count | None) -> None:
        super().__init__()
        if in_channels is not None:  # None: it takes no images
            self.in_channels = in_channels

    @abstractmethod
    def forward_features(self, x: Tensor) -> Tensor:
        """The last feature map, before pooling."""

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """Apply global average pooling and, unless `pre_logits`, the classifier."""
        pooled = F.adaptive_avg_pool2d(features, 1).flatten(1)
        return pooled if pre_logits else cast(Tensor, self.head(pooled))

    def forward_intermediates(
        self, x: Tensor, indices: int | Sequence[int] | None = None, intermediates_only: bool = False
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Return the last feature map, and `u_N` of the stages at `indices`, of the last `indices` stages, or of all.

        The pair `(X, Y)` of a RevNet is joined along the channels.
        """
        stages = [self.get_submodule(feature["module"]) for feature in self.chosen_features(indices)]
        states: dict[nn.Module, Tensor] = {}

        def keep(stage: nn.Module, args: object, state: Tensor | tuple[Tensor, ...]) -> None:
            states[stage] = torch.cat(state, dim=1) if isinstance(state, tuple) else state

        with ExitStack() as hooks:
            for stage in stages:
                hooks.enter_context(stage.register_forward_hook(keep))
            features = self.forward_features(x)
        intermediates = [states[stage] for stage in stages]
        return intermediates if intermediates_only else (features, intermediates)

    def chosen_features(self, indices: int | Sequence[int] | None = None) -> list[FeatureInfo]:
        """Return `feature_info` of the stages at `indices`, of the last `indices` stages, or of all."""
        features = list(self.feature_info)
        if not features:
            raise UserError(f"{type(self).__name__} has no stages: register forward hooks on the modules you need")
        if indices is None:
            return features
        count = len(features)
        chosen = [-n for n in range(indices, 0, -1)] if isinstance(indices, int) else list(indices)
        if not chosen or not all(isinstance(n, int) and -count <= n < count for n in chosen):
            raise UserError(f"indices = {indices!r}: the network has stages 0 to {count - 1}")
        return [features[n] for n in chosen]

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def set_memory(self, memory: Memory) -> None:
        """Set what a training step keeps for its backward pass: "stored", "recompute", "reversible" or "auto"."""
        stages = [module for module in self.modules() if isinstance(module, Stage)]
        if not stages and memory != "stored":
            raise UserError(
                f"memory={memory!r}: {type(self).__name__} has no stages that a scheme steps through; take 'stored'"
            )
        for stage in stages:
            stage.set_memory(memory)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """timm's name for `set_memory`: "recompute", or "stored"."""
        self.set_memory("recompute" if enable else "stored")

    def trajectory(self, x: Tensor, *args: Any, **options: Any) -> list[list[Any]]:
        """Return the states `u_0 … u_N` of a call, one list for each stage; pairs for a RevNet."""
        return trajectory(self, x, *args, **options)

    @property
    def in_chans(self) -> int:
        """timm's name for `in_channels`."""
        return self.in_channels

    def get_classifier(self) -> nn.Module:
        """Return the last layer; the identity for 0 classes."""
        return self.head

    @checked
    def reset_classifier(self, num_classes: CountFromZero) -> None:
        """Replace the classifier by a new one; 0 classes gives the pooled features."""
        self.num_classes = num_classes
        self.head = nn.Identity()
        if num_classes:
            like = next(self.parameters())
            self.head = nn.Linear(self.num_features, num_classes, device=like.device, dtype=like.dtype)
            initialise(self.head)

    def no_weight_decay(self) -> set[str]:
        """Return the parameters that a recipe may exempt from weight decay: norms, biases and coefficients k."""
        return vectors(self)

    def check_input(self, x: Tensor) -> None:
        """Raise for a batch of the wrong shape. A traced graph has no shape to compare."""
        if is_traced(x) or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return
        if x.ndim != 4 or x.shape[1] != self.in_channels:
            raise UserError(f"input of shape {tuple(x.shape)}: expected [batch, {self.in_channels}, height, width]")
        if min(x.shape[2], x.shape[3]) < self.reduction:
            raise UserError(
                f"image of {x.shape[2]} x {x.shape[3]} pixels: the strides need at least {self.reduction} each way"
            )
