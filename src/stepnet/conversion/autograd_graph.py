"""Is a block residual? Read from the graph that autograd recorded while the block ran.

A block is residual when its output holds its input unchanged: a path leads from the output back to the input through
sums only, `u + f(u)`. Changes of layout, and parts that are put together again, do not count. An activation or a
normalisation may stand after a sum (post-activation ResNets, post-norm transformers), never between the input and the
first sum: `relu(u) + f(u)` does not hold `u`.
"""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor
from torch.autograd.graph import Node

GraphPlace: TypeAlias = "tuple[Node | None, int]"  # a node of the graph and which of its outputs
Asked: TypeAlias = "tuple[GraphPlace, bool]"  # does it hold the input; True if the last thing on the way is a sum

_SUM_WITH_PRODUCT = {"Addcmul", "Addcdiv"}  # u + c (a b): only the first operand is passed on unchanged
_SAME = {
    "Alias", "AsStrided", "Clone", "Contiguous", "Copy", "Expand", "Flatten", "Movedim", "Permute", "Reshape",
    "ReshapeAlias", "Slice", "Split", "SplitWithSizes", "Squeeze", "T", "ToCopy", "Transpose", "Unsqueeze",
    "UnsafeSplit", "UnsafeView", "View",
}  # fmt: skip
AFTER_SUM = {
    "Celu", "CudnnBatchNorm", "Elu", "Gelu", "Hardswish", "Hardtanh", "LeakyRelu", "Mish", "MiopenBatchNorm",
    "NativeBatchNorm", "NativeGroupNorm", "NativeLayerNorm", "Prelu", "Relu", "Selu", "Silu", "Softplus",
}  # fmt: skip


def place_of(u: Tensor) -> GraphPlace:
    """Return where a tensor is in the graph; taken before the block runs, since an in-place operation moves it."""
    return (u.grad_fn, u.output_nr)


def activation_of(output: Tensor) -> str:
    """Return the last operation of a block after its sum: `relu`, `layernorm`, or the empty string."""
    node = output.grad_fn
    while node is not None and operation_of(node) in _SAME and node.next_functions:
        node = node.next_functions[0][0]
    last = "" if node is None else operation_of(node)
    return last.removeprefix("Native").lower() if last in AFTER_SUM else ""


def is_residual(output: Tensor, start: GraphPlace) -> bool:
    """Whether `output` is `start` plus something, up to layout and to what may follow a sum."""
    return _known(place_of(output), start)[place_of(output), False]


def held_places(output: GraphPlace, start: GraphPlace) -> set[GraphPlace]:
    """Return the places between a residual block's input and its output that hold the input."""
    return {place for (place, _), holds in _known(output, start).items() if holds} | {start}


def _known(output: GraphPlace, start: GraphPlace) -> dict[Asked, bool]:
    """Return for each place on the way from `output` whether it holds `start`.

    Not recursive: a stage of hundreds of blocks has a graph as deep as that.
    """
    known: dict[Asked, bool] = {}
    asked: list[Asked] = [(output, False)]
    while asked:
        place, summed = asked[-1]
        parts, every = ([], False) if place == start else made_of(place, summed)
        if missing := [part for part in parts if part not in known]:
            asked += missing
            continue
        held = [known[part] for part in parts]
        known[asked.pop()] = (place == start and summed) or (bool(held) and (all(held) if every else any(held)))
    return known


def made_of(place: GraphPlace, summed: bool) -> tuple[list[Asked], bool]:
    """Return the places that a place is made of, and whether every one of them, or just one, must hold the input."""
    if place[0] is None:
        return [], False
    operation = operation_of(place[0])
    edges: list[GraphPlace] = [edge for edge in place[0].next_functions if edge[0] is not None]
    if operation == "Add":
        return [(edge, True) for edge in edges], False
    if operation == "CopySlices":  # a sum in place on a view: what it was before, then what was added
        return [(edge, True) for edge in edges[1:]], False
    if operation in _SUM_WITH_PRODUCT:
        return [(edge, True) for edge in edges[:1]], False
    if operation in _SAME:
        return [(edge, summed) for edge in edges[:1]], False
    if operation == "Cat":  # class token and image tokens, put together again
        return [(edge, summed) for edge in edges], True
    return [(edge, False) for edge in edges[:1] if operation in AFTER_SUM], False


def operation_of(node: Node | None) -> str:
    """Return the operation that a node is the derivative of: `Add`, `Relu`."""
    return "" if node is None else str(node.name()).rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")
