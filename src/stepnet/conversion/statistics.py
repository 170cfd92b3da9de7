"""Running statistics of batch normalisation, one set for each evaluation of a block in its step.

`heun` evaluates `f` at `u_n` and at `u_n + dt f(u_n)`, two states with two means. Batch norm in training normalises
each evaluation by the statistics of its batch; one running mean over both would fit neither in evaluation mode. So the
first evaluation keeps the buffers of the layer, and each of the others has buffers named `step_…_i`.
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


_under_way = _Evaluation()  # of this thread: the number of the evaluation within its step


def at_evaluation(i: int, f: Callable[..., Any], *args: Any) -> Any:
    """Return `f(*args)`, in which normalisation layers use their `i`-th statistics."""
    before, _under_way.index = _under_way.index, i
    try:
        return f(*args)
    finally:
        _under_way.index = before


class Statistics(InstanceMixin):
    """The mixin of a normalisation layer whose buffers are those of the current evaluation."""

    step_evaluations: int

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Load as the layer does; all evaluations start from the one set in a checkpoint of the original network."""
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
    """Restore the layers of a block, with the statistics of the first evaluation."""
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
