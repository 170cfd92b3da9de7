"""The inside of a step: which evaluation of the block reads what, and with which weights all meet in the new state.

It is read off the plan of the march. A block may tell more of itself than the scheme knows: branches side by side
(`branch_weights`), weights of its own for each evaluation (`OwnWeights`), or that it is a whole map `B(u)` with
`f = B - I` (`whole`); then the sums of the plan are rewritten in those terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import sympy
from torch import nn

from stepnet.nets.blocks import OwnWeights
from stepnet.schemes.plan import PlannedStep, Quantity, Terms, dt

EdgeSource: TypeAlias = "int | tuple[str, int]"  # a box of this step by its number; else ("u" or "f", n) of step n
WeightedSum: TypeAlias = "dict[EdgeSource, sympy.Expr]"


@dataclass(frozen=True)
class Anatomy:
    """What a block tells of itself."""

    whole: bool = False  # it is given as B(u), and f = B - I
    own_weights: bool = False  # every evaluation in a step has weights of its own
    branch_weights: tuple[str, ...] = ()  # of the branches whose sum it is

    @classmethod
    def of(cls, block: nn.Module) -> Anatomy:
        """As the block's attributes say; a plain block has none."""
        own = isinstance(block, OwnWeights)
        part = block.fs[0] if isinstance(block, OwnWeights) else block
        return cls(getattr(part, "whole", False), own, tuple(getattr(part, "branch_weights", ())))


PLAIN = Anatomy()


@dataclass(frozen=True)
class Box:
    """One evaluation of the block, or of one of its branches."""

    label: str  # in mathtext
    argument: WeightedSum
    level: int  # 1 for what reads no other box of this step
    until: int  # the level of the first that reads it
    row: int = 0  # boxes whose lifetimes overlap stand in different rows, the short-lived lowest


@dataclass(frozen=True)
class Wiring:
    """The boxes of one step and the new state as a sum of them and of what was there before."""

    boxes: tuple[Box, ...]
    result: WeightedSum
    simple: bool  # one box that reads u_n: nothing that a drawing would have to explain

    @property
    def levels(self) -> int:
        """How many boxes stand one behind the other."""
        return max((box.level for box in self.boxes), default=0)

    @property
    def rows(self) -> int:
        """How many stand side by side."""
        return max((box.row + 1 for box in self.boxes), default=1)


def wiring(step: PlannedStep, n: int, step_size: float = 1, block: Anatomy = PLAIN) -> Wiring:
    """The wiring of the n-th step of a march with a block of that anatomy (of a pair: of its first part)."""
    length = sympy.nsimplify(step_size, rational=True)
    meanings: dict[Quantity, WeightedSum] = {}  # of each evaluation of this step, in terms of boxes

    def rewritten(terms: Terms) -> WeightedSum:
        found: WeightedSum = {}
        for quantity, weight in terms:
            meaning = meanings.get(quantity, {(quantity.name, quantity.n): sympy.Integer(1)})
            for source, share in meaning.items():
                found[source] = sympy.expand(found.get(source, 0) + weight.subs(dt, length) * share)
        return {source: weight for source, weight in found.items() if weight != 0}

    arguments: list[WeightedSum] = []
    labels: list[str] = []
    for evaluation in step.evaluations:
        argument = rewritten(evaluation.argument)
        meaning: WeightedSum = {}
        for branch, share in enumerate(block.branch_weights or ("1",)):
            meaning[len(labels)] = sympy.sympify(share)
            labels.append(_label(block, evaluation.result, branch))
            arguments.append(argument)
        if block.whole:  # f = B - I
            for source, weight in argument.items():
                meaning[source] = meaning.get(source, 0) - weight
        meanings[evaluation.result] = meaning
    result = rewritten(step.new[0])
    simple = len(labels) == 1 and not block.whole and arguments[0] in ({("u", n): 1}, {("u", -1): 1})
    return Wiring(tuple(_placed(labels, arguments, result)), result, simple)


def _label(block: Anatomy, result: Quantity, branch: int) -> str:
    letter = "B" if block.whole else result.name
    upper = [str(result.i + 1)] if block.own_weights else []
    upper += [str(branch + 1)] if block.branch_weights else []
    return f"${letter}_{{{result.n}}}" + (f"^{{{','.join(upper)}}}$" if upper else "$")


def _placed(labels: list[str], arguments: list[WeightedSum], result: WeightedSum) -> Iterator[Box]:
    """Levels by the longest way from `u_n`, rows by lifetimes that do not overlap."""
    levels: list[int] = []
    for argument in arguments:
        levels.append(1 + max((levels[source] for source in argument if isinstance(source, int)), default=0))
    last = max(levels, default=0) + 1
    until = [last] * len(labels)
    for reader, argument in enumerate(arguments):
        for source in argument:
            if isinstance(source, int):
                until[source] = min(until[source], levels[reader])
    rows: dict[int, int] = {}
    for number in sorted(range(len(labels)), key=lambda b: (until[b] - levels[b], b)):
        taken = {rows[other] for other in rows if levels[other] < until[number] and levels[number] < until[other]}
        rows[number] = next(row for row in range(len(labels)) if row not in taken)
    for number, (label, argument) in enumerate(zip(labels, arguments, strict=True)):
        yield Box(label, argument, levels[number], until[number], rows[number])


def states_and_slopes(result: Mapping[EdgeSource, sympy.Expr]) -> tuple[list[tuple[int, sympy.Expr]], ...]:
    """The past states and the past right-hand sides in a sum, by the step that they belong to."""
    found: dict[str, list[tuple[int, sympy.Expr]]] = {"u": [], "f": []}
    for source, weight in result.items():
        if not isinstance(source, int):
            found["f" if source[0] in "fg" else "u"].append((source[1], weight))
    return found["u"], found["f"]
