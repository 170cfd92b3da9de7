"""A network as a plain description: stages, their steps, what each step reads and with which weight.

What a step reads is not typed here: the plan of the march says it. A block may tell more of itself than the scheme
knows: branches side by side (`branch_weights`), separate weights for each evaluation (`UnsharedWeights`), or that it
is a whole map `B(u)` with `f = B - I` (`whole`); then the sums of the plan are rewritten in those terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

import sympy
from torch import Tensor, nn

from stepnet.analysis import plain, plain_equation, subject
from stepnet.errors import UserError, counted
from stepnet.nets import Stage, UnsharedWeights, step_sizes, steps_by_stage, written
from stepnet.schemes import (
    EULER,
    Entry,
    Plan,
    PlannedStep,
    Quantity,
    Scheme,
    Terms,
    plan,
    rare_use_message,
    steps_by_method,
    symbol,
)

dt, k = symbol("dt"), symbol("k")

EdgeSource: TypeAlias = "int | tuple[str, int]"  # a box of this step by its number; else ("u" or "f", n) of step n
WeightedSum: TypeAlias = "dict[EdgeSource, sympy.Expr]"
Source = TypeVar("Source")


@dataclass(frozen=True)
class Anatomy:
    """How a block evaluates `f`."""

    whole: bool = False  # it computes B(u), and f = B - I
    own_weights: bool = False  # every evaluation in a step has weights of its own
    branch_weights: tuple[str, ...] = ()  # of the branches whose sum it is

    @classmethod
    def of(cls, block: nn.Module) -> Anatomy:
        """Read the anatomy from the block's attributes; a plain block has none."""
        unshared = isinstance(block, UnsharedWeights)
        part = block.fs[0] if isinstance(block, UnsharedWeights) else block
        return cls(getattr(part, "whole", False), unshared, tuple(getattr(part, "branch_weights", ())))


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
    def carries_argument(self) -> bool:
        """Whether the step is `Y + f(Y)`: the sum that its only box reads is also what it carries on."""
        carried = {source: weight for source, weight in self.result.items() if not isinstance(source, int)}
        return len(self.boxes) == 1 and len(carried) > 1 and self.boxes[0].argument == carried

    @property
    def levels(self) -> int:
        """The number of boxes in sequence."""
        return max((box.level for box in self.boxes), default=0)

    @property
    def rows(self) -> int:
        """The number of boxes in parallel."""
        return max((box.row + 1 for box in self.boxes), default=1)


def wiring(step: PlannedStep, n: int, step_size: float = 1, block: Anatomy = PLAIN) -> Wiring:
    """Return the wiring of the n-th step for a block of this anatomy (for a pair: of its first part)."""
    length = sympy.nsimplify(step_size, rational=True)
    meanings: dict[Quantity, WeightedSum] = {}  # of each evaluation of this step, in terms of boxes

    def rewritten(terms: Terms) -> WeightedSum:
        return _substituted(
            [(quantity, weight.subs(dt, length)) for quantity, weight in terms],
            lambda quantity: meanings.get(quantity, {(quantity.name, quantity.n): sympy.Integer(1)}),
        )

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


def _substituted(
    terms: Iterable[tuple[Quantity, sympy.Expr]], meaning: Callable[[Quantity], Mapping[Source, Any]]
) -> dict[Source, sympy.Expr]:
    """Return a sum in other terms: `meaning` has the weights with which each quantity is a sum of them."""
    total: dict[Source, sympy.Expr] = {}
    for quantity, weight in terms:
        for source, share in meaning(quantity).items():
            total[source] = sympy.expand(total.get(source, 0) + share * weight)
    return {source: weight for source, weight in total.items() if weight != 0}


def _label(block: Anatomy, result: Quantity, branch: int) -> str:
    letter = "B" if block.whole else result.name
    upper = [str(result.i + 1)] if block.own_weights else []
    upper += [str(branch + 1)] if block.branch_weights else []
    return f"${letter}_{{{result.n}}}" + (f"^{{{','.join(upper)}}}$" if upper else "$")


def _placed(labels: list[str], arguments: list[WeightedSum], result: WeightedSum) -> Iterator[Box]:
    """Assign levels by the longest path from `u_n`, and rows by lifetimes that do not overlap."""
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
    """Split a sum into past states and past right-hand sides, by the step that they belong to."""
    terms: dict[str, list[tuple[int, sympy.Expr]]] = {"u": [], "f": []}
    for source, weight in result.items():
        if not isinstance(source, int):
            terms["f" if source[0] in "fg" else "u"].append((source[1], weight))
    return terms["u"], terms["f"]


GReads = Literal["old", "new", "predicted"]  # X_n, X_{n+1}, or X_n + dt f where the new X is still another sum
Weights = tuple[tuple[int, sympy.Expr], ...]  # (how many steps back, weight)


@dataclass(frozen=True)
class SketchedStep:
    """`u_{n+1}` as a sum: past states, and right-hand sides of past states. Weights are numbers or contain `k_n`."""

    states: Weights
    slopes: Weights  # of older steps; what this step evaluates stands in its wiring
    wiring: Wiring
    k: float | None = None  # the step's own coefficient; the mean where there is one for each channel
    g_reads: GReads = "old"  # of a pair


@dataclass(frozen=True)
class StageSketch:
    """A stage of one resolution: a scheme and its steps."""

    scheme: str
    equation: str
    steps: tuple[SketchedStep, ...]
    shape: str = ""  # of the state
    transition: bool = False  # the first step projects its input, and f reads it unprojected
    projected_past: bool = False  # the state before the input is projected too
    pair: bool = False  # the state is (X, Y)
    dts: tuple[float, ...] = (1,)  # of each step, or one for all
    after: str = ""  # what acts on each new state
    heading: str = ""  # in a drawing; by default the stage's number
    place: str = ""  # in its network, where only this stage is drawn
    by_channel: bool = False  # the k of its steps are means: each channel has its own
    streams: int = 1  # that are mixed in every step
    rarely: str = ""  # which methods take its steps, where the scheme itself takes few

    @property
    def length(self) -> str:
        """The number of steps."""
        return counted(len(self.steps), "step")

    @property
    def notes(self) -> list[str]:
        """What the name of the scheme does not say."""
        notes = [self.rarely] if self.rarely else []
        notes += [f"dt = {written(self.dts)}"] if set(self.dts) != {1} else []
        notes += [f"{self.after} after each step"] if self.after else []
        notes += ["past projected too"] if self.projected_past else []
        notes += [f"{self.streams} streams: u becomes V u + B f(U u)"] if self.streams > 1 else []
        return notes + (["k by channel, means shown"] if self.by_channel else [])

    @property
    def ks(self) -> list[float]:
        """The coefficients, in order of depth."""
        return [step.k for step in self.steps if step.k is not None]


@dataclass(frozen=True)
class NetworkSketch:
    """A network, from its first stage to its last."""

    title: str
    stages: tuple[StageSketch, ...]

    def __str__(self) -> str:
        return "\n".join([self.title, *(_line(n, stage) for n, stage in enumerate(self.stages, 1))])


def sketch(model: nn.Module, title: str) -> NetworkSketch:
    """Describe one of our networks, or a converted one."""
    stages = tuple(_stages(model))
    if not stages:
        raise UserError(f"{title} has no scheme: there is nothing to draw")
    return NetworkSketch(title, stages)


def sketch_stage(
    scheme: Scheme,
    depth: int,
    ks: Sequence[float] = (),
    dt: float | Sequence[float] = 1,
    shape: str = "",
    entry: Entry = "identity",
    after: str = "",
    blocks: Sequence[Anatomy] = (),
) -> StageSketch:
    """Describe a stage of `depth` steps with the coefficients `ks` and the anatomy of its `blocks`."""
    planned = _of_states(scheme, plan(EULER if scheme.stacked else scheme, depth, entry))
    values = dict(zip(planned.owners, ks, strict=True)) if ks else {}
    anatomy = blocks or [PLAIN] * depth
    dts = step_sizes(dt, depth)
    steps = tuple(_step(step, n, anatomy[n], values.get(n), dts[n]) for n, step in enumerate(planned.steps))
    if scheme.stacked:
        steps = tuple(step if entry != "identity" and n == 0 else _of_streams(step) for n, step in enumerate(steps))
    solved = subject(scheme.name if ks else scheme).equation
    equation = plain_equation(solved) if solved.mass != 0 or not scheme.learned else "no equation"
    moved, past, pair = entry != "identity", entry == "with past", scheme.partitioned
    rarely = rare_use_message(scheme.name, steps_by_method(scheme, [planned]))
    streams = len(scheme.streams) if scheme.stacked else 1
    return StageSketch(
        scheme.name, equation, steps, shape, moved, past, pair, dts, after, rarely=rarely, streams=streams
    )


def _of_states(scheme: Scheme, planned: Plan) -> Plan:
    """A plan whose sums are of states alone: `u_0` and a velocity `u_n - u_{n-1}` are no quantities of their own."""
    if not scheme.streams:
        return planned

    def in_states(quantity: Quantity) -> dict[Quantity, Any]:
        if quantity.name == "f":
            return {quantity: 1}
        parts = {quantity.n: 1} if quantity.n < 1 else scheme.in_states(quantity.name, quantity.n)
        return {Quantity("u", n, quantity.i): share for n, share in parts.items()}

    def rewritten(terms: Terms) -> Terms:
        return tuple(_substituted(terms, in_states).items())

    steps = []
    for step in planned.steps:
        evaluations = tuple(replace(one, argument=rewritten(one.argument)) for one in step.evaluations)
        steps.append(replace(step, evaluations=evaluations, new=tuple(map(rewritten, step.new))))
    return replace(planned, steps=tuple(steps))


def _step(step: PlannedStep, n: int, block: Anatomy, k: float | None, step_size: float) -> SketchedStep:
    step_wiring = wiring(step, n, step_size, block)
    states, slopes = (
        tuple((n - place, weight) for place, weight in sorted(terms, key=lambda term: -term[0]))
        for terms in states_and_slopes(step_wiring.result)
    )
    return SketchedStep(states, slopes, step_wiring, k, _g_reads(step, n))


def _of_streams(euler: SketchedStep) -> SketchedStep:
    """Return the step `V u + B f(U u)` of stacked streams, from that of Euler."""
    u, v, b = sympy.symbols("U V B")
    (box,) = euler.wiring.boxes
    ((source, _),) = box.argument.items()
    boxes = (replace(box, argument={source: u}),)
    return replace(euler, states=((0, v),), wiring=Wiring(boxes, {source: v, 0: b}, simple=False))


def _g_reads(step: PlannedStep, n: int) -> GReads:
    argument = next((e.argument for e in step.evaluations if e.result == Quantity("g", n)), None)
    if argument is None or all(quantity == Quantity("X", n) for quantity, _ in argument):
        return "old"
    return "new" if argument == step.new[0] else "predicted"


def _stages(model: nn.Module) -> Iterator[StageSketch]:
    for module in model.modules():
        if isinstance(module, Stage):
            coefficients = [] if module.mixing is not None else [k for _, k in module.named_coefficients()]
            pair = module.scheme.partitioned
            shape = f"{_channels(module)} + {_channels(module)} channels" if pair else f"{_channels(module)} channels"
            after = "" if module.after is None else getattr(module.after, "__name__", "activation")
            blocks = [Anatomy.of(block) for block in module.steps]
            ks, entry = [_value(k) for k in coefficients], module.plan.entry
            stage = sketch_stage(module.scheme, module.depth, ks, module.dts, shape, entry, after, blocks)
            yield replace(stage, by_channel=any(k.numel() > 1 for k in coefficients))
    for steps in steps_by_stage(model):
        if (first := steps[0].role) is not None:  # a converted chain
            ks = [_value(step.coefficient) for step in steps if step.coefficient is not None]
            start: Entry = "projected" if first.transition else "identity"
            yield sketch_stage(first.scheme, len(steps), ks, first.dt, shape=first.name, entry=start)


def _channels(stage: nn.Module) -> int:
    """Return the channels of a stage's state: those of its last convolution or linear layer."""
    last = [m for m in stage.modules() if isinstance(m, nn.Conv2d | nn.Linear)][-1]
    return last.out_channels if isinstance(last, nn.Conv2d) else last.out_features


def _value(k: Tensor) -> float:
    return float(k.detach().float().mean())


def _line(n: int, stage: StageSketch) -> str:
    parts = [f"stage {n}", stage.length, stage.scheme, stage.equation, *filter(None, [stage.shape]), *stage.notes]
    return ", ".join(parts) + (f"\n  k = {_listed(stage.ks)}" if stage.ks else "")


def _listed(ks: list[float], ends: int = 4) -> str:
    """Format numbers with three decimals; leave out the middle of a long list."""
    texts = [f"{k:.3f}" for k in ks]
    return ", ".join(texts if len(ks) <= 2 * ends else [*texts[:ends], "…", *texts[-ends:]])


def weight_text(weight: sympy.Expr, n: int, value: float | None) -> str:
    """Format the weight of an edge in mathtext: nothing for 1, `k_n` with its value, `1 - k_n`, a number."""
    if weight == 1:
        return ""
    if weight == k:
        return f"$k_{{{n}}}$" if value is None else f"$k_{{{n}}} = {value + 0.0:.3f}$"
    if getattr(weight, "q", 1) > 99:  # a rational that nobody reads as one
        return f"${float(weight):.3g}$"
    numbered = re.sub(r"([a-z])(\d+)", r"\1_{\2}", plain(weight))  # a2: the second a
    return f"${numbered.replace('k', f'k_{{{n}}}')}$"
