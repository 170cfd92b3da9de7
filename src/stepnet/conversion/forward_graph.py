"""Read the split of a block from the graph that torch.fx records of its `forward`.

The block's direct calls are the nodes of this graph; calls inside submodules are not recorded. The graph is followed
back from the output, through an activation or a norm, to a sum of two terms. If one of them is the input, it is the
shortcut; otherwise the shortcut is the term with fewer weight matrices of its own, and both may share layers without
weight matrices (the pre-activation of He et al.).

A recorded graph is what `forward` did once. It is accepted only if it is the same in training and in evaluation and has
no floating-point constant, which may have been an attribute (a dropout rate) that changes later.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable

import torch
from torch import fx, nn

from stepnet.conversion.split import Operation, Program, Split, Value, is_identity

_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")


def read_split(block: nn.Module) -> Split | None:
    """Return the split of a block that is called with one tensor; None if its `forward` has another form."""
    flag = block.training
    splits = []
    try:
        for training in (True, False):
            block.training = training  # only of the block: torch.fx does not enter submodules
            splits.append(_Graph(block).split())
    except Exception:  # forward is the code of others, and may do anything with the placeholders of torch.fx
        return None
    finally:
        block.training = flag
    return splits[0] if splits[0] == splits[1] else None


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


class _NoSplit(Exception):
    """The graph is not that of `after(shortcut(u) + branch(u))`."""


class _Graph:
    def __init__(self, block: nn.Module) -> None:
        self.block = block
        first, *others = inspect.signature(block.forward).parameters.values()
        defaults = {p.name: p.default for p in others if p.default is not p.empty}
        nodes = _Tracer().trace(block, defaults).nodes
        self.order = {node: n for n, node in enumerate(nodes)}
        self.input = next(node for node in nodes if node.op == "placeholder" and node.target == first.name)
        self.output = next(node.args[0] for node in nodes if node.op == "output")

    def split(self) -> Split:
        """Return the split, or raise `_NoSplit`."""
        total, after = self.output, set()
        while total.target not in _SUMS:
            if len(total.all_input_nodes) != 1 or self.weights({total}):
                raise _NoSplit
            after.add(total)
            (total,) = total.all_input_nodes
        if len(total.all_input_nodes) != 2 or len(total.args) != 2 or total.kwargs:
            raise _NoSplit
        shortcut, branch = self.shortcut_and_branch(*total.all_input_nodes)
        numbers, before = self.program(self.input, self.made_of(shortcut) | self.made_of(branch))
        return Split(before, numbers[shortcut], numbers[branch], self.program(total, after)[1])

    def shortcut_and_branch(self, one: fx.Node, other: fx.Node) -> tuple[fx.Node, fx.Node]:
        for shortcut, branch in ((one, other), (other, one)):
            if self.past_identities(shortcut) is self.input:
                return self.input, branch
        parts = self.made_of(one), self.made_of(other)
        shared = parts[0] & parts[1]
        weights = [self.weights(part - shared) for part in parts]
        inner = bool(self.weights(shared)) or one in shared or other in shared  # a term is a state inside the block
        if inner or weights[0] == weights[1] or not all(self.input in part for part in parts):
            raise _NoSplit
        return (one, other) if weights[0] < weights[1] else (other, one)

    def past_identities(self, node: fx.Node) -> fx.Node:
        while node.op == "call_module" and is_identity(self.block.get_submodule(str(node.target))):
            (node,) = node.all_input_nodes
        return node

    def made_of(self, node: fx.Node) -> set[fx.Node]:
        """Return the node and everything that it was computed from."""
        nodes, waiting = set(), [node]
        while waiting:
            node = waiting.pop()
            if node not in nodes:
                nodes.add(node)
                waiting += node.all_input_nodes
        return nodes

    def weights(self, nodes: Iterable[fx.Node]) -> int:
        """Count the weight matrices and kernels that these nodes apply."""
        count = 0
        for node in nodes:
            if node.op == "call_module":
                count += sum(p.ndim > 1 for p in self.block.get_submodule(str(node.target)).parameters())
            elif node.op == "get_attr":
                count += operator.attrgetter(str(node.target))(self.block).ndim > 1
        return count

    def program(self, start: fx.Node, nodes: set[fx.Node]) -> tuple[dict[fx.Node, int], Program]:
        """Return the number of each node's value, and the nodes as operations on `start`, in order."""
        numbers, operations = {start: 0}, []
        for node in sorted(nodes - {start}, key=self.order.__getitem__):
            if node.op == "placeholder" or "_tensor_constant" in str(node.target):
                raise _NoSplit
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda used: Value(numbers[used]))
            if _holds_float((args, tuple(kwargs.values()))):
                raise _NoSplit
            operations.append(Operation(node.op, node.target, tuple(args), dict(kwargs)))
            numbers[node] = len(operations)
        return numbers, tuple(operations)


def _holds_float(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, tuple | list) and any(map(_holds_float, value)))
