"""The stream between residual blocks in autograd's graph: where blocks add to it, and with which weight that arrives.

What a block adds is an edge of the graph. A gradient that starts at a later place of the stream, and is stopped at
every such edge, has passed nothing but what stands between the blocks. If that is a sum with numbers as weights, the
gradient `v` arrives as `w v`, and `w` is the weight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from stepnet.conversion.autograd_graph import AFTER_SUM, GraphPlace, held_places, made_of, operation_of

Weight: TypeAlias = (
    "NDArray[np.float64] | None"  # a number, or one for each channel; None: no multiple of what was sent
)

_LAYOUT = {
    "Alias", "Clone", "Contiguous", "Flatten", "Movedim", "Permute", "Reshape", "ReshapeAlias", "Squeeze", "T",
    "ToCopy", "Transpose", "Unsqueeze", "UnsafeView", "View",
}  # fmt: skip
_PARTS = _LAYOUT | {"Expand", "Index", "Select", "Slice", "Split", "Unbind"}  # of a parameter with all coefficients
_SCALINGS = {"Mul", "Div"}


class AddedTerm(NamedTuple):
    """A term that a residual block adds to its stream."""

    made: GraphPlace  # before it is multiplied by numbers
    read: GraphPlace | None  # the place of the stream that it is computed from,
    total: GraphPlace  # and the one where it is added


def edge_of(u: Tensor) -> GraphPlace:
    """Return where a tensor is in the graph; for a leaf, the node that accumulates its gradient."""
    node, number = get_gradient_edge(u)[:2]
    return node, number


def branches(after: GraphPlace, before: GraphPlace) -> list[AddedTerm]:
    """Return the terms that a residual block adds on the way from its input to its output, from first to last."""
    held = held_places(after, before)
    stream: list[GraphPlace] = []  # from the output back to the input
    terms: list[tuple[GraphPlace, GraphPlace]] = []
    waiting = [after]
    while waiting:
        place = waiting.pop(0)
        if place in stream:
            continue
        stream.append(place)
        if place == before:
            continue
        inner = [edge for edge, _ in made_of(place, True)[0] if edge in held]
        waiting += inner
        if operation_of(place[0]) in ("Add", "Sub", "CopySlices", "Addcmul", "Addcdiv"):
            edges: list[GraphPlace] = [edge for edge in cast(Node, place[0]).next_functions if edge[0] is not None]
            terms += [(edge, place) for edge in edges if edge not in inner and not _is_parameter(edge)]
    places, added = set(stream), []
    for term, total in reversed(terms):
        read = next((inner for inner in _made_from(term) if inner in places), None)
        added.append(AddedTerm(unscaled(term), read, total))
    return added


def shortcut_of(after: GraphPlace, before: GraphPlace) -> tuple[GraphPlace, AddedTerm] | None:
    """Return shortcut and branch of a block that changes the shape: the shortcut has fewer weight matrices."""
    place = before_activation(after) or after
    if operation_of(place[0]) != "Add":
        return None
    edges: list[GraphPlace] = [edge for edge in cast(Node, place[0]).next_functions if edge[0] is not None]
    if len(edges) != 2:
        return None
    shortcut, branch = sorted(edges, key=lambda edge: _matrices(edge, before))
    return shortcut, AddedTerm(unscaled(branch), None, place)


def before_activation(place: GraphPlace) -> GraphPlace | None:
    """Return the input of the activation or norm whose output is at a place; None if there is none."""
    node = place[0]
    while node is not None and operation_of(node) in _LAYOUT and node.next_functions:
        node = node.next_functions[0][0]
    if node is None or operation_of(node) not in AFTER_SUM:
        return None
    inner: GraphPlace = node.next_functions[0]
    return inner if inner[0] is not None else None


def unscaled(place: GraphPlace) -> GraphPlace:
    """Return the place before products with constants, or with parameters of one value or one for each channel."""
    while (node := place[0]) is not None:
        operation, edges = operation_of(node), [edge for edge in node.next_functions if edge[0] is not None]
        if operation in _LAYOUT and edges:
            place = edges[0]
            continue
        factors = [edge for edge in edges if not _is_parameter(edge)]
        small = all(_is_vector(edge) for edge in edges if _is_parameter(edge))
        if operation not in _SCALINGS or len(factors) != 1 or not small:
            return place
        place = factors[0]
    return place


def origin_of(place: GraphPlace) -> GraphPlace:
    """Return the one place of which the tensor at a place is a multiple; the place itself if there are several."""
    origins: set[GraphPlace] = set()
    waiting = [place]
    while waiting:
        inner = unscaled(waiting.pop())
        edges = [] if inner[0] is None else [edge for edge in inner[0].next_functions if edge[0] is not None]
        if operation_of(inner[0]) in ("Add", "Sub") and not any(map(_is_parameter, edges)):
            waiting += edges
        else:
            origins.add(inner)
    return origins.pop() if len(origins) == 1 else place


def arrivals(place: GraphPlace, sources: Sequence[GraphPlace]) -> list[Weight]:
    """Return the weight of each source in the tensor at a place, without what passes through other sources."""
    node, number = place
    shape, like = _metadata(place)
    generator = torch.Generator().manual_seed(0)
    vector = (1 + torch.rand(shape, generator=generator)).to(like)
    with _stopped_at(sources):
        sent = [
            torch.autograd.grad(
                [GradientEdge(cast(Node, node), number)],
                [GradientEdge(cast(Node, source[0]), source[1]) for source in sources],
                [probe],
                retain_graph=True,
                allow_unused=True,
            )
            for probe in (torch.ones_like(vector), vector)
        ]
    return [_weight(ones, other, vector) for ones, other in zip(*sent, strict=True)]


def _weight(ones: Tensor | None, other: Tensor | None, vector: Tensor) -> Weight:
    """Return the factor by which two vectors, one of them ones, were multiplied on the way; None if there is none.

    The entries of the other vector may arrive in any order.
    """
    if ones is None or other is None:
        return np.zeros(1)
    if ones.numel() != vector.numel():
        return None
    rounding = 64 * torch.finfo(ones.dtype).eps
    ones, other, vector = ones.double(), other.double(), vector.double()
    largest = max(float(ones.abs().max()), float(other.abs().max()))
    if not largest:
        return np.zeros(1)
    near = 1e-3 * largest
    weight = _by_channel(ones, near)
    same = other.shape == vector.shape and torch.allclose(other, ones * vector, rtol=0, atol=near)
    if weight is not None and (same or _permuted(ones, other, vector, near)):
        return cast("NDArray[np.float64]", weight.numpy())
    return np.zeros(1) if largest <= rounding else None  # 0 where weights cancel up to rounding


def _permuted(ones: Tensor, other: Tensor, vector: Tensor, near: float) -> bool:
    """Whether the entries that arrived are those of the vector in another order: a change of layout."""
    clear = bool((ones.abs() > near).all())
    return clear and torch.allclose(_moments(other / ones), _moments(vector), rtol=1e-5)


def _moments(values: Tensor) -> Tensor:
    """Return statistics that do not depend on the order of the values."""
    return torch.stack([(values**n).mean() for n in (1, 2, 3, 4)])


def _by_channel(pattern: Tensor, near: float) -> Tensor | None:
    """Return the one value of a tensor, or its values along the only dimension along which it varies."""
    if float(pattern.max() - pattern.min()) <= near * 1e-2:
        return pattern.mean().reshape(1)
    for dim in range(pattern.ndim):
        flat = pattern.movedim(dim, 0).flatten(1)
        if float((flat.amax(1) - flat.amin(1)).max()) <= near * 1e-2:
            return flat.mean(1)
    return None


@contextmanager
def _stopped_at(sources: Sequence[GraphPlace]) -> Iterator[None]:
    """Stop every gradient at these places within the context."""
    numbers: dict[Node, set[int]] = {}
    for node, number in sources:
        numbers.setdefault(cast(Node, node), set()).add(number)

    def stop(own: set[int]) -> Callable[..., tuple[Tensor | None, ...]]:
        return lambda gradients: tuple(None if n in own else each for n, each in enumerate(gradients))

    with ExitStack() as hooks:
        for node, own in numbers.items():
            hooks.enter_context(node.register_prehook(stop(own)))
        yield


def _metadata(place: GraphPlace) -> tuple[torch.Size, Tensor]:
    """Return the shape of the tensor at a place, and an empty tensor of its dtype and device."""
    seen = cast(Node, place[0])._input_metadata[place[1]]
    return seen.shape, torch.empty(0, dtype=seen.dtype, device=seen.device)


def _made_from(place: GraphPlace, until: Collection[GraphPlace] = ()) -> Iterator[GraphPlace]:
    """Yield a place and those that it is computed from, nearest first, as far as those in `until`."""
    seen: set[GraphPlace] = set()
    waiting = deque([place])
    while waiting:
        place = waiting.popleft()
        if place[0] is not None and place not in seen and place not in until:
            seen.add(place)
            yield place
            waiting += place[0].next_functions


def parameters_of(place: GraphPlace, until: GraphPlace) -> Iterator[nn.Parameter]:
    """Return the parameters that a place is computed from, nearest first."""
    variables = (getattr(inner[0], "variable", None) for inner in _made_from(place, [until]))
    return (variable for variable in variables if variable is not None)


def _matrices(place: GraphPlace, until: GraphPlace) -> int:
    return sum(parameter.ndim > 1 for parameter in parameters_of(place, until))


def _is_parameter(place: GraphPlace) -> bool:
    """Whether a place is a parameter, or a part of one."""
    node = place[0]
    while node is not None and operation_of(node) in _PARTS and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
    return node is not None and hasattr(node, "variable")


def _is_vector(place: GraphPlace) -> bool:
    shape, _ = _metadata(place)
    return sum(size > 1 for size in shape) <= 1
