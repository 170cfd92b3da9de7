"""What a training step keeps for its backward pass, and which mode "auto" stands for.

stored       all that autograd saves
recompute    the states, of a deep stage every m-th; the blocks are evaluated again (`replay`)
reversible   the last states; the scheme is run backwards (`reversible`)
auto         reversible where the coefficients are such that it keeps a quarter of the states or less, else recompute
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from stepnet.errors import UserError
from stepnet.nets.reversible import SPARE_BITS
from stepnet.schemes import Coefficient, Scheme

Memory = Literal["stored", "recompute", "reversible", "auto"]


def choose_memory(memory: Memory, scheme: Scheme, ks: Iterable[Coefficient], activation: str) -> Memory:
    """The mode itself, or the one that "auto" stands for; an `activation` after the steps cannot be taken back."""
    if memory == "reversible" and not scheme.invertible:
        why = f": {scheme.why_not_invertible}" if scheme.why_not_invertible else ""
        raise UserError(f"memory='reversible': scheme {scheme.name!r} has no inverse{why}; take memory='recompute'")
    if memory == "reversible" and activation:
        raise UserError(f"memory='reversible': {activation} cannot be undone; take pre-activation, or 'recompute'")
    if memory != "auto":
        return memory
    if not scheme.invertible or activation:
        return "recompute"
    lost = [scheme.lost_bits(k) for k in ks]
    # Where the spare bits are spent, two states of double precision are kept; by "recompute", one of single for a step.
    return "reversible" if 4 * sum(lost) / SPARE_BITS <= len(lost) / 4 else "recompute"


def segment_length(scheme: Scheme, depth: int) -> int:
    """How many steps are repeated as one: the m that keeps least, `s N / m` states between segments and `4 m` in one.

    A step reads s states, of which m = 1 keeps each once; an evaluation keeps about 4 states' worth for its gradient.
    """
    lengths = range(1, max(depth, 1) + 1)
    return min(lengths, key=lambda m: min(m, scheme.steps) * depth / m + 4 * scheme.stages * m)
