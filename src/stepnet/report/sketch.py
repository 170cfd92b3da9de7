"""A network as a plain description: stages, their steps, what each step reads and with which weight.

What a step reads is not typed here: `march` runs on symbols, and each new state is looked at as a sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import sympy
from torch import Tensor, nn

from stepnet.analysis.notation import plain, plain_equation
from stepnet.analysis.symbols import subject
from stepnet.conversion.step import Step as ConvertedStep
from stepnet.errors import UserError
from stepnet.nets.reversible import ReversibleStage
from stepnet.nets.stage import EULER, Stage
from stepnet.schemes import Point, Scheme, march

BEFORE_INPUT = -2  # the place of the state before the input x, which has -1: u_0 is the projected x
Weights = tuple[tuple[int, Any], ...]  # (how many steps back, weight)


@dataclass(frozen=True)
class Step:
    """`u_{n+1}` as a sum: past states, and right-hand sides of past states. Weights are numbers or contain `k_n`."""

    states: Weights
    slopes: Weights
    evaluations: int = 1
    k: float | None = None  # the step's own coefficient; the mean where there is one for each channel


@dataclass(frozen=True)
class StageSketch:
    """One resolution: a scheme and its steps."""

    scheme: str
    equation: str
    steps: tuple[Step, ...]
    shape: str = ""  # of the state
    transition: bool = False  # the first step projects its input, and f reads it unprojected
    projected_past: bool = False  # the state before the input is projected too
    pair: bool = False  # the state is (X, Y)
    dt: float = 1
    after: str = ""  # what acts on each new state

    @property
    def length(self) -> str:
        """How many steps."""
        return f"{len(self.steps)} step{'' if len(self.steps) == 1 else 's'}"

    @property
    def notes(self) -> list[str]:
        """What the scheme alone does not say."""
        notes = [f"dt = {self.dt:.4g}"] if self.dt != 1 else []
        notes += [f"{self.after} after each step"] if self.after else []
        return notes + (["past projected too"] if self.projected_past else [])

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
    """The description of one of our networks, or of one that was converted."""
    stages = tuple(_stages(model))
    if not stages:
        raise UserError(f"{title} marches no scheme: there is nothing to draw")
    return NetworkSketch(title, stages)


def sketch_stage(
    scheme: Scheme,
    depth: int,
    ks: Sequence[float] = (),
    dt: float = 1,
    shape: str = "",
    transition: bool = False,
    projected_past: bool = False,
    after: str = "",
) -> StageSketch:
    """A stage of `depth` steps. `ks` are the coefficients of the last steps: a step without a full past owns none."""
    equation = plain_equation(subject(scheme.name if ks else scheme).equation)
    if scheme.equation.partitioned:
        steps = [Step(((0, 1),), ((0, 1),))] * depth
        return StageSketch(scheme.name, equation, tuple(steps), shape, transition, pair=True, dt=dt)
    values = dict(zip(range(depth - len(ks), depth), ks, strict=True))
    first = EULER if transition and not projected_past else scheme
    lead = (
        _march(first, range(1), values, dt, [Point(_state(BEFORE_INPUT))] if projected_past else [])
        if transition
        else []
    )
    rest = range(len(lead), depth)
    steps = lead + _march(scheme, rest, values, dt, [Point(_state(0), _rhs(0))] if transition else [])
    return StageSketch(scheme.name, equation, tuple(steps), shape, transition, projected_past, after=after, dt=dt)


def _march(scheme: Scheme, places: range, values: dict[int, float], dt: float, past: Sequence[Point]) -> list[Step]:
    """Each new state is seen as a sum, and stands as a symbol in the next step."""
    steps: list[Step] = []

    def settle(total: Any) -> Any:
        n = places.start + len(steps)
        steps.append(_step(sympy.expand(total), n, values.get(n)))
        return _state(n + 1)

    owned = [_k(n) for n in places if n in values] if scheme.trainable else None
    length = sympy.nsimplify(dt, rational=True)
    for _ in march(scheme, map(_rhs, places), _state(places.start), length, owned, after=settle, past=past):
        pass
    return steps


def _step(total: Any, n: int, k: float | None) -> Step:
    states: dict[int, Any] = {}
    slopes: dict[int, Any] = {}
    evaluations = 1
    for symbol in total.free_symbols:
        kind, *place = symbol.name.split()
        if kind == "k":
            continue
        lag = n - int(place[0])
        found = states if kind == "u" else slopes
        found[lag] = found.get(lag, 0) + total.coeff(symbol)
        if kind == "f" and lag == 0:
            evaluations = max(evaluations, int(place[1]) + 1)
    return Step(_sorted(states), _sorted(slopes), evaluations, k)


def _sorted(weights: dict[int, Any]) -> Weights:
    return tuple((lag, weight) for lag, weight in sorted(weights.items()) if weight != 0)


def _state(n: int) -> Any:
    return sympy.Symbol(f"u {n}")


def _k(n: int) -> Any:
    return sympy.Symbol(f"k {n}")


def _rhs(n: int) -> Any:
    return lambda u, c, i: sympy.Symbol(f"f {n} {i}")


def _stages(model: nn.Module) -> Iterator[StageSketch]:
    for module in model.modules():
        if isinstance(module, ReversibleStage):
            shape = f"{_channels(module)} + {_channels(module)} channels"
            yield sketch_stage(module.scheme, module.depth, (), module.dt, shape, module.transition is not None)
        elif isinstance(module, Stage):
            ks = [] if module.k is None else [_value(k) for k in module.k.unbind()]
            moved = module.transition is not None
            past = module.transition is not None and module.transition.project_past is not None
            shape = f"{_channels(module)} channels"
            after = "" if module.after is None else getattr(module.after, "__name__", "activation")
            yield sketch_stage(module.scheme, module.depth, ks, module.dt, shape, moved, past, after)
    steps = [module for module in model.modules() if isinstance(module, ConvertedStep)]
    starts = 0

    def run(step: ConvertedStep) -> int:
        nonlocal starts
        starts += step.step_role.place == 0
        return starts

    for _, members in groupby(steps, run):
        yield _converted(list(members))


def _converted(steps: list[ConvertedStep]) -> StageSketch:
    """A run of blocks that `convert` made steps."""
    ks = [_value(k) for step in steps for _, k in step.named_coefficients()]
    role = steps[0].step_role
    return sketch_stage(role.scheme, len(steps), ks, shape=role.name, transition=role.transition)


def _channels(stage: nn.Module) -> int:
    """The channels of a stage's state: those of its last convolution."""
    return [m.out_channels for m in stage.modules() if isinstance(m, nn.Conv2d)][-1]


def _value(k: Tensor) -> float:
    return float(k.detach().float().mean())


def _line(n: int, stage: StageSketch) -> str:
    parts = [f"stage {n}", stage.length, stage.scheme, stage.equation, *filter(None, [stage.shape]), *stage.notes]
    return ", ".join(parts) + (f"\n  k = {_listed(stage.ks)}" if stage.ks else "")


def _listed(ks: list[float], ends: int = 4) -> str:
    """Three decimals each; the middle of a long list is left out."""
    texts = [f"{k:.3f}" for k in ks]
    return ", ".join(texts if len(ks) <= 2 * ends else [*texts[:ends], "…", *texts[-ends:]])


def weight_text(weight: Any, n: int, k: float | None) -> str:
    """A weight for an edge, in mathtext: nothing for 1, `k_n` with its value, `1 - k_n`, a number."""
    if weight == 1:
        return ""
    symbol = _k(n)
    if weight == symbol:
        return f"$k_{{{n}}}$" if k is None else f"$k_{{{n}}} = {k + 0.0:.3f}$"
    if getattr(weight, "q", 1) > 99:  # a rational that nobody reads as one
        return f"${float(weight):.3g}$"
    return f"${plain(weight).replace(str(symbol), f'k_{{{n}}}')}$"
