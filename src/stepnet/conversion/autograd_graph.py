"""Is a block residual? Read from the graph that autograd recorded while the block ran.

A block is residual when its output holds its input unchanged: a path leads from the output back to the input through
sums only, `u + f(u)`. Changes of layout, and parts that are put together again, do not count. An activation or a
normalisation may stand after a sum (post-activation ResNets, post-norm transformers), never between the input and the
first sum: `relu(u) + f(u)` does not hold `u`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from torch import Tensor

Place: TypeAlias = "tuple[Any, int]"  # a node of the graph and which of its outputs

_SUM_WITH_PRODUCT = {"Addcmul", "Addcdiv"}  # u + c (a b): only the first operand is passed on unchanged
_SAME = {
    "Alias", "AsStrided", "Clone", "Contiguous", "Copy", "Expand", "Flatten", "Movedim", "Permute", "Reshape",
    "ReshapeAlias", "Slice", "Split", "SplitWithSizes", "Squeeze", "T", "ToCopy", "Transpose", "Unsqueeze",
    "UnsafeSplit", "UnsafeView", "View",
}  # fmt: skip
_AFTER_SUM = {
    "Celu", "CudnnBatchNorm", "Elu", "Gelu", "Hardswish", "Hardtanh", "LeakyRelu", "Mish", "MiopenBatchNorm",
    "NativeBatchNorm", "NativeGroupNorm", "NativeLayerNorm", "Prelu", "Relu", "Selu", "Silu", "Softplus",
}  # fmt: skip


def place_of(u: Tensor) -> Place:
    """Where a tensor stands in the graph; taken before the block runs, since work in place moves it."""
    return (u.grad_fn, u.output_nr)


def activation_of(output: Tensor) -> str:
    """What stands last in a block, after its sum: `relu`, `layernorm`, or nothing."""
    node = output.grad_fn
    while node is not None and _operation(node) in _SAME and node.next_functions:
        node = node.next_functions[0][0]
    last = "" if node is None else _operation(node)
    return last.removeprefix("Native").lower() if last in _AFTER_SUM else ""


def is_residual(output: Tensor, start: Place) -> bool:
    """Whether `output` is `start` plus something, up to layout and to what may follow a sum."""
    known: dict[tuple[Place, bool], bool] = {}

    def holds(place: Place, summed: bool) -> bool:
        """Whether what stands at `place` holds the input; `summed` if a sum is the last thing passed on the way."""
        key = (place, summed)
        if key not in known:
            known[key] = (place == start and summed) or _descends(place, summed)
        return known[key]

    def _descends(place: Place, summed: bool) -> bool:
        if place[0] is None or place == start:
            return False
        operation = _operation(place[0])
        edges: list[Place] = [edge for edge in place[0].next_functions if edge[0] is not None]
        if operation == "Add":
            return any(holds(edge, True) for edge in edges)
        if operation == "CopySlices":  # a sum in place on a view: what it was before, then what was added
            return any(holds(edge, True) for edge in edges[1:])
        if operation in _SUM_WITH_PRODUCT:
            return bool(edges) and holds(edges[0], True)
        if operation in _SAME:
            return bool(edges) and holds(edges[0], summed)
        if operation == "Cat":  # class token and image tokens, put together again
            return bool(edges) and all(holds(edge, summed) for edge in edges)
        return operation in _AFTER_SUM and bool(edges) and holds(edges[0], False)

    return holds(place_of(output), False)


def _operation(node: Any) -> str:
    return str(node.name()).rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")
