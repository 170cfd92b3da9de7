"""Is a block residual? Read from the graph that autograd recorded while the block ran.

A block is residual when its output holds its input unchanged: a path leads from the output back to the input through
sums only, `u + f(u)`. Changes of shape or layout do not count. An activation or a normalisation may stand after a sum
(post-activation ResNets, post-norm transformers), never between the input and the first sum: `relu(u) + f(u)` does
not hold `u`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from torch import Tensor

Place: TypeAlias = "tuple[Any, int]"  # a node of the graph and which of its outputs

_SUM = {"Add", "Addcmul", "Addcdiv"}
# Addcmul computes u + c (a b): only its first operand is passed on unchanged.
_FIRST_ONLY = {"Addcmul", "Addcdiv"}
_SAME = {
    "Alias", "AsStrided", "Clone", "Contiguous", "Copy", "Expand", "Flatten", "Movedim", "Permute", "Reshape",
    "ReshapeAlias", "Squeeze", "T", "ToCopy", "Transpose", "Unsqueeze", "UnsafeView", "View",
}  # fmt: skip
_AFTER_SUM = {
    "Celu", "CudnnBatchNorm", "Elu", "Gelu", "Hardswish", "Hardtanh", "LeakyRelu", "Mish", "MiopenBatchNorm",
    "NativeBatchNorm", "NativeGroupNorm", "NativeLayerNorm", "Prelu", "Relu", "Selu", "Silu", "Softplus",
}  # fmt: skip


def place_of(u: Tensor) -> Place:
    """Where a tensor stands in the graph; taken before the block runs, since work in place moves it."""
    return (u.grad_fn, u.output_nr)


def is_residual(output: Tensor, start: Place) -> bool:
    """Whether `output` is `start` plus something, up to layout and to what may follow a sum."""
    # A place is met in one of two moods: `clear` when a sum is the nearest thing passed, or not yet.
    waiting: list[tuple[Place, bool]] = [(place_of(output), False)]
    seen = set()
    while waiting:
        place, clear = waiting.pop()
        if place == start and clear:
            return True
        node, _ = place
        if node is None or (place, clear) in seen:
            continue
        seen.add((place, clear))
        operation = node.name().removesuffix("Backward0").removesuffix("Backward1").removesuffix("Backward")
        edges = [edge for edge in node.next_functions if edge[0] is not None]
        if operation in _SUM:
            waiting += [(edge, True) for edge in (edges[:1] if operation in _FIRST_ONLY else edges)]
        elif operation in _SAME:
            waiting += [(edge, clear) for edge in edges[:1]]
        elif operation in _AFTER_SUM:
            waiting += [(edge, False) for edge in edges[:1]]
    return False
