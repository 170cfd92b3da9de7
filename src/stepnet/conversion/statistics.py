"""Running statistics of batch normalisation, one set for each evaluation of a block in its step.

`heun` evaluates `f` at `u_n` and at `u_n + dt f(u_n)`, two states with two means. Batch norm in training normalises
each evaluation by its own batch; one running mean over both would fit neither of them in evaluation mode. So the first
evaluation keeps the buffers that the layer has, and every further one gets its own, named `step_…_i`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from stepnet.conversion.mixins import InstanceMixin, add_mixin, remove_mixin

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


class _Evaluation(threading.local):
    index = 0


_under_way = _Evaluation()  # of this thread: which evaluation of its step a block is in


def at_evaluation(i: int, f: Callable[..., Any], *args: Any) -> Any:
    """`f(*args)`, in which the normalisation layers use their `i`-th statistics."""
    before, _under_way.index = _under_way.index, i
    try:
        return f(*args)
    finally:
        _under_way.index = before


class Statistics(InstanceMixin):
    """What the subclass adds to a normalisation layer: its buffers are those of the evaluation under way."""

    step_evaluations: int

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """As the layer's; a checkpoint of the original network has one set, with which all evaluations begin."""
        for i in range(1, self.step_evaluations):
            for name in BUFFERS:
                if prefix + name in state_dict:
                    state_dict.setdefault(prefix + _name(name, i), state_dict[prefix + name].clone())
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def reset_running_stats(self) -> None:
        for i in range(self.step_evaluations):
            at_evaluation(i, super().reset_running_stats)  # type: ignore[misc]

    @classmethod
    def members(cls, original: type[nn.Module]) -> dict[str, Any]:
        return {name: property(_buffer(name)) for name in BUFFERS}


def keep_apart(block: nn.Module, evaluations: int) -> None:
    """Give the normalisation layers of a block statistics for each of its evaluations."""
    for layer in block.modules():
        if evaluations > 1 and isinstance(layer, _NormBase) and layer.running_mean is not None:
            for i in range(1, evaluations):
                for name in BUFFERS:
                    layer.register_buffer(_name(name, i), layer._buffers[name].clone())  # type: ignore[union-attr]
            add_mixin(layer, Statistics)
            layer.step_evaluations = evaluations  # type: ignore[assignment]


def bring_together(block: nn.Module) -> None:
    """Leave the layers of a block with the statistics of the first evaluation, as they came."""
    for layer in block.modules():
        if isinstance(layer, Statistics):
            for i in range(1, layer.step_evaluations):
                for name in BUFFERS:
                    del layer._buffers[_name(name, i)]
            del layer.step_evaluations
            remove_mixin(layer)


def _buffer(name: str) -> Callable[[nn.Module], Tensor | None]:
    return lambda layer: layer._buffers[_name(name, _under_way.index)]


def _name(name: str, i: int) -> str:
    return name if i == 0 else f"step_{name}_{i}"
