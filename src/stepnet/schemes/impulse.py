"""The impulse response of a scheme, and the scheme of an impulse response.

Let `f` return a unit vector of its own at every evaluation, whatever its argument. Then a march carries weights instead
of states: the argument of each evaluation, and the last state, say how much of `u_0` and of every earlier `f` arrived
there. Between its blocks a residual network is linear in what they add, so the same weights can be read off a network
that runs (`stepnet.read`), and compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stepnet.schemes.arithmetic import Coefficient, State, from_parts, parts_of
from stepnet.schemes.core import Past, Point, RightHandSide, RightHandSides, Scheme, advance, march
from stepnet.schemes.march_plan import Entry, plan, transition_of
from stepnet.schemes.scheme_registry import get_scheme, list_schemes

Weights = NDArray[np.float64]
MOST_TRIALS = 40  # of a fit: the weights are nearly linear in what is fitted
MOST_FITTED = 64  # steps of a stage to which step sizes of their own are fitted


@dataclass(frozen=True)
class MarchShape:
    """The number of steps of a march, its entry, and whether an activation follows each step."""

    steps: int
    entry: Entry = "identity"
    activated: bool = False


def impulse_response(
    scheme: Scheme,
    layout: MarchShape,
    dt: Coefficient | Sequence[Coefficient] = 1,
    ks: Sequence[Coefficient] | None = None,
    gates: Sequence[Coefficient] | None = None,
) -> Weights:
    """One row for each evaluation of f, and one for each part of the last state, in order.

    The columns are the first states, the evaluations, and with an activation the states that come out of it: what
    passed one is no longer a sum, and counts as a new state. There a row is what arrives before the activation. The
    row of the first evaluation is zero where it reads a state of another shape. `dt` is one for all steps or one for
    each; so are the `ks`, None for a step without one. Coefficients may be vectors, one for each channel: the last
    axis of the result.
    """
    dts = list(dt) if isinstance(dt, list | tuple) else [dt] * layout.steps
    counting = _Units(layout, scheme, 0)
    list(counting.march(scheme, dts, ks, gates))
    units = _Units(layout, scheme, len(counting.rows))
    *_, last = units.march(scheme, dts, ks, gates)
    ends = [units.row(part) for part in parts_of(scheme.read_out(last))]
    channels = max(row.shape[-1] for row in (*units.rows, *ends))
    return np.stack([np.broadcast_to(row, (row.shape[0], channels)) for row in (*units.rows, *ends)])


class _Units:
    """Unit vectors for first states, evaluations and activated states, and the rows that were seen."""

    def __init__(self, layout: MarchShape, scheme: Scheme, evaluations: int) -> None:
        self.layout = layout
        self.pair, self.functions = scheme.partitioned, len(scheme.functions)
        self.starts = 2 if self.pair or layout.entry == "with past" else 1
        self.counts = evaluations, layout.steps if layout.activated else 0
        self.rows: list[Weights] = []
        self.before: list[tuple[Weights, Weights]] = []  # an activated state, and the sum before the activation
        self.first: State = scheme.enter(from_parts([self.unit(n) for n in range(2 if self.pair else 1)]))

    def unit(self, place: int) -> Weights:
        vector = np.zeros((self.starts + sum(self.counts), 1))
        vector[place : place + 1] = 1  # empty while evaluations are counted
        return vector

    def row(self, u: Weights) -> Weights:
        """The weights of a state; for an activated state, those before the activation."""
        return next((total for state, total in self.before if state is u), u)

    def march(
        self,
        scheme: Scheme,
        dts: Sequence[Coefficient],
        ks: Sequence[Coefficient] | None,
        gates: Sequence[Coefficient] | None,
    ) -> Iterable[State]:
        layout, sizes = self.layout, iter(dts)
        coefficients = iter([scheme.k] * layout.steps if ks is None else ks)

        def step(method: Scheme, past: Past, _dt: Coefficient, _k: Coefficient, gate: Coefficient) -> State:
            return advance(method, past, next(sizes), next(coefficients), gate)

        return march(
            scheme,
            map(self.sides, range(layout.steps)),
            self.first,
            None,
            None,
            gates,
            partial(scheme.activate, self.activate) if layout.activated else None,
            [Point(self.unit(1))] if layout.entry == "with past" else [],
            transition_of(scheme) if layout.entry == "projected" else None,
            step,
        )

    def sides(self, n: int) -> RightHandSides:
        return from_parts([cast(RightHandSide, self.evaluate)] * self.functions)

    def evaluate(self, u: State, c: Coefficient, i: int) -> Weights:
        foreign = not self.rows and self.layout.entry != "identity"
        self.rows.append(np.zeros_like(u) if foreign else self.row(u))
        return self.unit(self.starts + len(self.rows) - 1)

    def activate(self, u: State) -> State:
        state = self.unit(self.starts + self.counts[0] + len(self.before))
        self.before.append((state, u))
        return state


@dataclass(frozen=True)
class Match:
    """A scheme with fitted step sizes and coefficients, and its largest deviation from the measured response."""

    scheme: str
    dt: tuple[float, ...]  # one, or one for each step
    coefficients: tuple[float, ...]
    deviation: float

    @property
    def free(self) -> int:
        """The number of fitted parameters."""
        return len(self.dt) + len(self.coefficients)


def nearest_scheme(measured: Weights, layout: MarchShape, tolerance: float) -> Match | None:
    """Return the simplest scheme within the tolerance, otherwise the nearest one.

    Tried in order: one step size for all steps, one for each step, learned coefficients in each step.
    """
    schemes = [scheme for scheme in map(get_scheme, list_schemes()) if scheme.makes_network]
    schemes.sort(key=lambda scheme: (bool(scheme.streams), scheme.stages, scheme.steps))
    matches: list[Match] = []
    for trainable, several in ((False, False), (False, True), (True, False)):
        if several and layout.steps > MOST_FITTED:
            continue
        fits = (fit(scheme, measured, layout, several) for scheme in schemes if scheme.trainable == trainable)
        close: list[Match] = []
        for match in (match for match in fits if match is not None):
            if match.deviation <= tolerance and not trainable:
                return match
            (close if match.deviation <= tolerance else matches).append(match)
        if close:
            return min(close, key=lambda match: match.free)
    return min(matches, key=lambda match: match.deviation, default=None)


def fit(scheme: Scheme, measured: Weights, layout: MarchShape, several: bool = False) -> Match | None:
    """Fit step sizes and coefficients by least squares; None if the scheme's response has another shape.

    The weights of evaluations are divided by their largest in each channel: with a step size of 1e-6 (LayerScale at its
    start), a deviation of 1e-6 is a large one.
    """
    from scipy.optimize import least_squares

    if scheme.partitioned and (layout.activated or layout.entry == "with past"):
        return None
    shapes = [one.shape() for one in scheme.euler_start]
    if scheme.whole_past or any(len(shape) > 1 for shape in shapes) or (scheme.streams and layout.activated):
        return None  # a free matrix in every step would fit almost any response
    sizes = layout.steps if several else 1
    owners = plan(scheme, layout.steps, layout.entry).owners
    identity = [[one.at(n) for one in scheme.euler_start] if scheme.euler_start else [0.0] for n in owners]
    each = np.array([np.concatenate([np.ravel(value) for value in values]) for values in identity], dtype=np.float64)
    firsts = 2 if scheme.partitioned or layout.entry == "with past" else 1
    evaluations = measured.shape[1] - firsts - (layout.steps if layout.activated else 0)
    part = measured[:, firsts : firsts + evaluations]
    units = np.abs(part).max((0, 1)) if part.size else np.ones(1)
    units = np.where(units == 0, 1, units)
    scaled = measured.copy()
    scaled[:, firsts : firsts + evaluations] /= units
    mean, unit = scaled.mean(-1), float(units.mean())

    def response(values: NDArray[np.float64]) -> Weights:
        dt = values[:sizes].tolist() * (1 if several else layout.steps)
        coefficients = (_coefficients(scheme, shapes, row) for row in values[sizes:].reshape(each.shape))
        ks = [next(coefficients) if n in owners else None for n in range(layout.steps)]
        return impulse_response(scheme, layout, dt, ks if scheme.trainable else None)[: len(mean), :, 0]

    def residual(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.ravel(response(values) - mean)

    start = np.concatenate([np.ones(sizes), each.ravel()])
    if response(start).shape != mean.shape:
        return None
    best = least_squares(residual, start, xtol=1e-14, ftol=1e-14, max_nfev=MOST_TRIALS)
    deviation = float(np.abs(response(best.x)[..., None] - scaled).max())
    dt = best.x[:sizes] * unit ** (1 / scheme.equation.derivative)
    return Match(scheme.name, tuple(dt.tolist()), tuple(best.x[sizes:].tolist()), deviation)


def _coefficients(scheme: Scheme, shapes: Sequence[tuple[int, ...]], values: NDArray[np.float64]) -> Coefficient:
    """Unpack the coefficients of a step from a flat vector."""
    if not scheme.euler_start:
        return float(values[0])
    parts = np.split(values, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
    return {
        one.name: part.reshape(shape)[()] for one, shape, part in zip(scheme.euler_start, shapes, parts, strict=True)
    }


def streams(measured: Weights, firsts: int, tolerance: float = 1e-5) -> int:
    """The number of streams of the smallest general linear method with this response.

    What later rows depend on in the first states and f_0 … f_n passes through the streams after step n. Their number
    is the largest rank of the response's blocks below the diagonal (theorem of Ho and Kalman).
    """
    mean = measured.mean(-1)
    ranks = [
        int(np.linalg.matrix_rank(mean[n + 1 :, : firsts + n + 1], tol=tolerance * max(1.0, float(np.abs(mean).max()))))
        for n in range(len(mean) - 1)
    ]
    return max(ranks, default=1)


def as_channels(value: Any) -> Any:
    """Convert a network's coefficient to numpy: a scalar, one value for each channel, or a dict of arrays.

    Scalars are numpy's, which a scheme never treats as an exact 0 or 1; neither does the network.
    """
    if isinstance(value, dict):
        return {name: _array(part)[()] for name, part in value.items()}
    array = _array(value).ravel()
    return array[0] if array.size == 1 else array


def _array(value: Any) -> NDArray[np.float64]:
    if isinstance(value, list | tuple):
        return np.array([_array(part) for part in value])
    return np.asarray(value.detach().double().cpu() if hasattr(value, "detach") else value, dtype=np.float64)
