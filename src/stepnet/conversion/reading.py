"""`stepnet.read`: the scheme that a network really is, read off its run.

What each block adds is an impulse; with which weight it arrives at the input of every later block, and at the end of
the stage, is a matrix. Schemes have the same matrix (`stepnet.schemes.impulse`), so the network has the scheme whose
matrix it shows, whatever its code is called. Networks of ours and converted ones also declare a scheme with dt and k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from stepnet.arguments import Positive, checked
from stepnet.conversion.autograd_graph import GraphPlace
from stepnet.conversion.chains import Blocks
from stepnet.conversion.marches import Declared, ObservedMarch, found_marches, own_marches, weights_at
from stepnet.conversion.step import ConvertedStep
from stepnet.conversion.stream import Weight, before_activation
from stepnet.conversion.trace import copied
from stepnet.errors import UserError
from stepnet.nets import Stage, check_makes_network
from stepnet.schemes import (
    MarchShape,
    Match,
    Scheme,
    Weights,
    fit,
    fits_almost_anything,
    get_scheme,
    impulse_response,
    nearest_scheme,
    streams,
)

TOLERANCE = 1e-5  # single precision, and room for a sum of many
SHOWN = 10  # rows and columns of a matrix that are printed


@dataclass(frozen=True)
class StageReading:
    """The weights of one stage: a row for each evaluation of a block, and for each part of the last state, if known."""

    blocks: tuple[str, ...]  # the block of each evaluation
    firsts: tuple[str, ...]  # the columns of the first states; those of the evaluations follow
    weights: Weights  # rows, columns, and channels where they differ
    layout: MarchShape
    nearest: Match | None  # the declared scheme where that is it; nothing where the stage is not linear
    streams: int | None  # of the smallest general linear method with these weights; an activation leaves none
    declared: str = ""  # the scheme that the network says it has,
    deviation: float | None = None  # and how far the weights are from it
    note: str = ""  # why the stage begins here

    @property
    def matrix(self) -> NDArray[np.float64]:
        """With which weight what block j adds arrives at evaluation i, and last at the end; the mean over channels."""
        first = len(self.firsts)
        return cast("NDArray[np.float64]", self.weights[:, first : first + len(self.blocks)].mean(-1))

    @property
    def rows(self) -> list[str]:
        """What each row of the weights is: the blocks, and the end."""
        ends = len(self.weights) - len(self.blocks)
        return [*self.blocks, *(["end"] if ends == 1 else [f"end {part}" for part in "XY"][:ends])]

    @property
    def verdict(self) -> str:
        """In one line: the scheme with its dt and coefficients, or how far from all of them the weights are."""
        after = ", an activation after each step" if self.layout.activated else ""
        if self.declared and self.deviation is None:
            why = "its streams pass an activation" if self.layout.activated else "its weights depend on the state"
            return f"{self.declared}, declared, not compared: {why}"
        if self.nearest is None:
            linear = np.isfinite(self.weights).all()
            return "no scheme evaluates f so often" if linear else "not linear between its blocks"
        found, off = _named(self.nearest), self.nearest.deviation
        if self.declared and not self._close(self.deviation):
            return f"NOT the {self.declared} that it declares: off by {self.deviation:.2g}; nearest is {found}{after}"
        if self.declared:
            return f"{found}, as declared (off by {self.deviation:.1g}){after}"
        if self._close(off):
            return f"{found}{after}"
        several = "" if self.streams is None else f"a general linear method of {self.streams} streams; "
        return f"{several}nearest is {found}, off by {off:.2g}{after}"

    def __str__(self) -> str:
        more = f" ({self.note})" if self.note else ""
        name = self.blocks[0] if len(self.blocks) == 1 else f"{self.blocks[0]} … {self.blocks[-1]}"
        return "\n".join([f"{name}{more}: {self.verdict}", *_table(self)])

    def as_dict(self) -> dict[str, Any]:
        """Return everything that was read as JSON values; a weight that is not a number is null."""
        matrix = [[value if np.isfinite(value) else None for value in row] for row in self.matrix.tolist()]
        return {
            "blocks": list(self.blocks),
            "rows": self.rows,
            "matrix": matrix,
            "u_0": self.weights[:, : len(self.firsts)].mean(-1).tolist(),
            "activated": self.layout.activated,
            "nearest": None if self.nearest is None else asdict(self.nearest),
            "streams": self.streams,
            "declared": self.declared or None,
            "deviation": self.deviation,
            "verdict": self.verdict,
        }

    def _close(self, deviation: float | None) -> bool:
        return deviation is not None and deviation <= TOLERANCE


@dataclass(frozen=True)
class Reading:
    """What was read off a network, stage by stage."""

    network: str
    stages: tuple[StageReading, ...]

    def __str__(self) -> str:
        count = sum(len(stage.blocks) for stage in self.stages)
        stages = f"{len(self.stages)} stage{'s' * (len(self.stages) != 1)}"
        return "\n\n".join([f"{self.network}: {count} evaluations of blocks in {stages}", *map(str, self.stages)])

    def as_dict(self) -> dict[str, Any]:
        """Return the network and its stages as JSON values."""
        return {"network": self.network, "stages": [stage.as_dict() for stage in self.stages]}


@checked
def read(model: nn.Module, example: Any = None, *, blocks: Blocks | None = None) -> Reading:
    """Measure the weight with which the output of each block enters the input of every later block.

    It runs once on the `example` (a tensor, a tuple of arguments, a dict of keyword arguments; guessed if there is
    none), in evaluation mode, as a copy. Its residual blocks are those that `convert` finds, where attention and
    feed-forward network of a layer are two; `blocks` names others: residual blocks, or modules whose output the
    network adds to its state in any way of its own. Where the network is not linear between two blocks, a stage ends.
    """
    network = copied(model).eval().requires_grad_(True)
    if blocks is None and any(isinstance(module, Stage | ConvertedStep) for module in network.modules()):
        marches = own_marches(network, example)
    else:
        marches = found_marches(network, example, blocks)
    if not marches:
        raise UserError(
            f"{type(model).__name__} has no blocks to read: looked for residual blocks, whose output is their input "
            "plus something; name the modules whose outputs it adds with blocks="
        )
    return Reading(type(model).__name__, tuple(_reading(march) for march in marches))


@checked
def assert_scheme(
    model: nn.Module,
    scheme: Any,
    example: Any = None,
    tolerance: Positive = TOLERANCE,
    *,
    blocks: Blocks | None = None,
) -> Reading:
    """Raise an AssertionError unless every stage of a network is the scheme: a test of anyone's residual connections.

    A name leaves dt and trained coefficients free; a scheme object has its own coefficients, at dt = 1; an array is the
    matrix itself, of the one stage: a row for each block (and the end, where that is known), a column for each block.
    A network that declares a scheme must also have the weights that follow from its parameters; for this scheme's name
    that is all. Of other networks a name cannot say that they are `hyper`, `mhc`, `altup` or `dense`, whose free
    coefficients fit almost any weights.
    """
    reading = read(model, example, blocks=blocks)
    for stage in reading.stages:
        deviation, wanted = _distance(stage, scheme)
        if stage.deviation is not None and stage.deviation > deviation:
            deviation, wanted = stage.deviation, f"the {stage.declared} that it declares"
        if not deviation <= tolerance:
            where = f"{stage.blocks[0]} … {stage.blocks[-1]}"
            raise AssertionError(f"{where}: its weights differ from {wanted} by {deviation:.2g}: {stage.verdict}")
    return reading


def _distance(stage: StageReading, scheme: Any) -> tuple[float, str]:
    """Return the distance of a stage's weights from those of a scheme, and what they are compared with."""
    if isinstance(scheme, str):
        method = get_scheme(scheme)
        check_makes_network(method, pair=method.equation.partitioned, branches=True)
        if stage.declared == method.name and stage.deviation is not None:
            return stage.deviation, f"the {scheme} that it declares"
        if not stage.declared and fits_almost_anything(method):
            raise UserError(
                f"scheme {scheme!r} leaves so many coefficients free that it fits almost any network: give the matrix "
                "that they declare, or a scheme that has them, get_scheme(…)"
            )
        matches = [fit(method, stage.weights, stage.layout, several) for several in (False, True)]
        return min((match.deviation for match in matches if match is not None), default=np.inf), scheme
    if isinstance(scheme, Scheme):
        wanted = impulse_response(scheme, stage.layout, 1, [scheme.k] * stage.layout.steps)
        return _deviation(stage.weights, wanted[: len(stage.weights)]), str(scheme)
    try:
        matrix = np.asarray(scheme, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"scheme is a {type(scheme).__name__}: expected a name, a scheme or a matrix") from None
    if matrix.shape != stage.matrix.shape:
        raise UserError(f"a matrix of shape {matrix.shape} for {stage.blocks[0]} …: expected {stage.matrix.shape}")
    return _deviation(stage.matrix[..., None], matrix[..., None]), "the matrix"


def _reading(march: ObservedMarch) -> StageReading:
    """Return the weights of a march with the nearest scheme."""
    declared, firsts = march.declared, len(march.starts)
    weights, activated = _weights(march)
    layout = march.layout(activated) if declared is None else declared.layout
    linear = bool(np.isfinite(weights).all())
    response = None if declared is None else declared.response()
    deviation = None if response is None else _deviation(weights, response)
    if declared is not None and deviation is not None and deviation <= TOLERANCE:
        nearest: Match | None = _as_declared(declared, deviation)
    else:
        unknown = linear and (declared is None or response is not None)
        nearest = nearest_scheme(weights, layout, TOLERANCE) if unknown else None
    pair = ("X_0", "Y_0") if layout.entry != "with past" else ("u_0", "u_-1")
    return StageReading(
        blocks=tuple(evaluation.name for evaluation in march.evaluations),
        firsts=("u_0",) if firsts == 1 else pair,
        weights=weights,
        layout=layout,
        nearest=nearest,
        streams=streams(weights, firsts) if linear and not activated else None,
        declared="" if declared is None else declared.scheme.name,
        deviation=deviation,
        note=march.note,
    )


def _weights(march: ObservedMarch) -> tuple[Weights, bool]:
    """Return the weights in the order of `impulse_response`, and whether an activation follows each step."""
    evaluations = march.evaluations
    before = {place: before_activation(place) for place in march.settled}
    own = march.declared.layout.activated if march.declared is not None else None
    activated = (bool(before) and all(before.values())) if own is None else own
    settled = [place for place in before if activated and place not in march.starts]
    sums = {place: before[place] or place for place in settled}
    columns = [[place] for place in march.starts] + [e.made for e in evaluations] + [[place] for place in settled]
    nothing: list[Weight] = [np.zeros(1)] * len(columns)
    places = [e.read for e in evaluations] + march.ends
    weights = _stacked([nothing if at is None else weights_at(sums.get(at, at), columns) for at in places])
    if activated and march.declared is None:  # the last one goes nowhere
        weights = np.pad(weights, ((0, 0), (0, 1), (0, 0)))
    _subtract_inputs(weights, march, settled)
    return weights, activated


def _stacked(rows: Sequence[Sequence[Weight]]) -> Weights:
    """Return the weights as one array of rows, columns and channels; their mean, where channels cannot be aligned."""
    channels = {weight.size for row in rows for weight in row if weight is not None} - {1}
    width = channels.pop() if len(channels) == 1 else 1
    return np.stack([np.stack([_spread(weight, width) for weight in row]) for row in rows])


def _subtract_inputs(weights: Weights, march: ObservedMarch, settled: Sequence[GraphPlace]) -> None:
    """Write the weights of what a whole block makes, `B(u) = u + f`, as those of f, in place."""
    firsts, count = len(march.starts), len(march.evaluations)
    whole = [(j, evaluation.read) for j, evaluation in enumerate(march.evaluations) if evaluation.whole]
    for n, row in enumerate(weights):
        for j, read in whole:
            if j < n and read in settled:
                row[firsts + count + settled.index(read)] += row[firsts + j]
            elif j < n:
                row += row[firsts + j] * weights[j]


def _spread(weight: Weight, width: int) -> NDArray[np.float64]:
    if weight is None:
        return np.full(width, np.nan)
    return np.broadcast_to(weight if weight.size == width else weight.mean(keepdims=True), (width,))


def _deviation(found: Weights, wanted: Weights) -> float:
    if wanted.shape[:2] != found.shape[:2]:
        return float("inf")
    different = float(np.abs(found - wanted).max())
    return float("inf") if np.isnan(different) else different


def _as_declared(declared: Declared, deviation: float) -> Match:
    gates = [1.0] * len(declared.dts) if declared.gates is None else [float(np.mean(gate)) for gate in declared.gates]
    dts = [dt * gate for dt, gate in zip(declared.dts, gates, strict=True)]
    one = declared.scheme.trainable and not declared.scheme.learned  # one k in a step
    ks = [float(np.mean(k)) for k in declared.ks if k is not None] if one else []
    return Match(declared.scheme.name, tuple(dts if len(set(dts)) > 1 else dts[:1]), tuple(ks), deviation)


def _named(match: Match) -> str:
    """`lm, dt = 1, k = -0.05, -0.02`."""
    parts = [("dt", match.dt), ("k", match.coefficients)]
    return ", ".join([match.scheme, *(f"{name} = {_some(values)}" for name, values in parts if values)])


def _some(values: Sequence[float]) -> str:
    shown = [f"{value:.4g}" for value in values]
    return ", ".join(shown if len(shown) <= SHOWN else [*shown[: SHOWN - 3], "…", *shown[-2:]])


def _table(stage: StageReading) -> Iterator[str]:
    """Format the matrix with the numbers of its blocks; of a large one, the first and the last rows and columns."""
    cells = [[_cell(value) for value in row] for row in stage.weights.mean(-1)]
    numbers = [str(n + 1) for n in range(len(stage.blocks))]
    heads = [
        *stage.firsts,
        *numbers,
        *(f"u_{n + 1}" for n in range(stage.layout.steps if stage.layout.activated else 0)),
    ]
    columns, rows = _ends(len(heads)), _ends(len(cells))
    names = [f"{numbers[n] if n < len(numbers) else '':>3} {name}" for n, name in enumerate(stage.rows)]
    wide = max(len(names[n]) for n in rows if n is not None)
    body = [[cells[n][c] if c is not None else "…" for c in columns] for n in rows if n is not None]
    top = ["…" if c is None else heads[c] for c in columns]
    widths = [max(map(len, column)) for column in zip(top, *body, strict=True)]
    yield "  ".join([" " * (wide + 2), *(cell.rjust(width) for cell, width in zip(top, widths, strict=True))])
    lines = iter(body)
    for n in rows:
        if n is None:
            yield "  …"
            continue
        cells_of = "  ".join(cell.rjust(width) for cell, width in zip(next(lines), widths, strict=True))
        yield f"  {names[n]:<{wide}}  {cells_of}".rstrip()


def _ends(count: int) -> list[int | None]:
    if count <= SHOWN + 2:
        return list(range(count))
    return [*range(SHOWN - 3), None, *range(count - 3, count)]


def _cell(value: float) -> str:
    return "?" if np.isnan(value) else "" if value == 0 else f"{value:.4g}"
