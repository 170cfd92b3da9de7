"""Running statistics of batch normalisation, one set for each evaluation of a block in its step.

`heun` evaluates `f` at `u_n` and at `u_n + dt f(u_n)`, two states with two means. Batch norm in training normalises
each evaluation by the statistics of its batch; one running mean over both would fit neither in evaluation mode. So the
first evaluation uses the buffers of the layer, and each of the others has buffers of its own, while weights are shared.
The number of the evaluation is a variable of the thread, so layers of any class, which take no number, can read it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, cast

from torch import Tensor, nn
from torch.fx import Tracer
from torch.nn.modules.batchnorm import _NormBase

from stepnet.nets.mixins import InstanceMixin, add_mixin, remove_mixin
from stepnet.schemes import is_traced

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


class _Evaluation(threading.local):
    index = 0


_current = _Evaluation()


def at_evaluation(i: int, f: Callable[..., Any], *args: Any) -> Any:
    """Return `f(*args)`, in which normalisation layers use their `i`-th statistics."""
    before, _current.index = _current.index, i
    try:
        return f(*args)
    finally:
        _current.index = before


class Statistics(InstanceMixin):
    """The mixin of a normalisation layer whose buffers are those of the current evaluation."""

    step_buffers: dict[tuple[str, int], str]  # the names of the buffers of further evaluations

    def __call__(self, input: Tensor) -> Tensor:
        """Call the layer; torch.fx, which would record no number, records that of a further evaluation."""
        if _current.index and is_traced(input):
            tracer = cast(Tracer, input.tracer)
            layer = tracer.create_proxy("get_attr", tracer.path_of_module(self), (), {})
            args = (_current.index, layer, input)
            return cast(Tensor, tracer.create_proxy("call_function", at_evaluation, args, {}))
        return cast(Tensor, super().__call__(input))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Load as the layer does; all evaluations start from the one set in a checkpoint of the original network."""
        for (name, _), further in self.step_buffers.items():
            if prefix + name in state_dict:
                state_dict.setdefault(prefix + further, state_dict[prefix + name].clone())
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def reset_running_stats(self) -> None:
        for i in {0, *(i for _, i in self.step_buffers)}:
            at_evaluation(i, super().reset_running_stats)  # type: ignore[misc]

    @classmethod
    def step_members(cls, original: type[nn.Module]) -> dict[str, Any]:
        return {name: property(_current_buffer(name)) for name in BUFFERS}


def separate_statistics(
    module: nn.Module, evaluations: int, pattern: str = "{}_{}", names: Iterable[str] = BUFFERS[:2]
) -> None:
    """Give the normalisation layers of a module buffers for each further evaluation, named by the pattern.

    Evaluations follow each other on each batch, so they need no count of batches of their own.
    """
    for layer in module.modules():
        if evaluations > 1 and isinstance(layer, _NormBase) and layer.running_mean is not None:
            buffers = {(name, i): pattern.format(name, i) for i in range(1, evaluations) for name in names}
            for (name, _), further in buffers.items():
                layer.register_buffer(further, layer._buffers[name].clone())  # type: ignore[union-attr]
            add_mixin(layer, Statistics).step_buffers = buffers


def join_statistics(module: nn.Module) -> None:
    """Restore the layers of a module, with the statistics of the first evaluation."""
    for layer in module.modules():
        if isinstance(layer, Statistics):
            for further in layer.step_buffers.values():
                del layer._buffers[further]
            del layer.step_buffers
            remove_mixin(layer)


def _current_buffer(name: str) -> Callable[[Statistics], Tensor | None]:
    def read(layer: Statistics) -> Tensor | None:
        i, buffers = _current.index, layer._buffers
        if i == 0:
            return buffers[name]
        further = layer.step_buffers.get((name, i))
        return cast(Tensor, buffers[name]).clone() if further is None else buffers[further]  # a count is not changed

    return read
