"""The impulse response of a scheme, and the scheme of an impulse response.

Let `f` return a new unit vector at every evaluation, whatever its argument. Then a march computes weights instead of
states: the argument of each evaluation, and the last state, are the weights of `u_0` and of every earlier `f` in it. A
residual network is linear in the outputs of its blocks except inside the blocks, so the same weights can be measured in
a running network (`stepnet.read`) and compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from stepnet.schemes.arithmetic import Coefficient, State, from_parts, parts_of
from stepnet.schemes.core import Past, Point, RightHandSide, RightHandSides, Scheme, advance, march
from stepnet.schemes.march_plan import Entry, plan, transition_of
from stepnet.schemes.scheme_registry import get_scheme, list_schemes

Weights = NDArray[np.float64]
MOST_TRIALS = 40  # evaluations of a fit, which is nearly linear
MOST_FITTED = 64  # the most steps for which separate step sizes are fitted


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
    """Return one row of weights for each evaluation of f, and one for each part of the last state, in order.

    The columns are the first states, the evaluations, and the activated states: after an activation a state is no
    longer a sum, and counts as a new one. A row holds the weights before the activation. The row of the first
    evaluation is zero if it reads a state of another shape. `dt` is one number, or one for each step; `ks` has an entry
    for each step, None for a step without k. Coefficients may be vectors with one entry for each channel, which is the
    last axis of the result.
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
    """Unit vectors for first states, evaluations and activated states, and the rows recorded so far."""

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
        other_shape = not self.rows and self.layout.entry != "identity"
        self.rows.append(np.zeros_like(u) if other_shape else self.row(u))
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

    The weights of evaluations are divided by the largest in each channel: for a step size of 1e-6 (LayerScale at
    initialisation), a deviation of 1e-6 is large.
    """
    from scipy.optimize import least_squares

    if not _can_be_fitted(scheme, layout):
        return None
    shapes = [one.shape() for one in scheme.euler_start]
    sizes = layout.steps if several else 1
    owners = plan(scheme, layout.steps, layout.entry).owners
    identity = [[one.at(n) for one in scheme.euler_start] if scheme.euler_start else [0.0] for n in owners]
    each = np.array([np.concatenate([np.ravel(value) for value in values]) for values in identity], dtype=np.float64)
    scaled, units = _in_units(measured, layout, firsts=1 + (scheme.partitioned or layout.entry == "with past"))
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


def _can_be_fitted(scheme: Scheme, layout: MarchShape) -> bool:
    """Whether the scheme can have a march of this shape, and few enough coefficients that a fit means something."""
    if scheme.partitioned and (layout.activated or layout.entry == "with past"):
        return False
    if scheme.splits and layout.entry != "identity":
        return False  # a layer of two branches has no transition
    return not (fits_almost_anything(scheme) or (scheme.streams and layout.activated))


def fits_almost_anything(scheme: Scheme) -> bool:
    """Whether its coefficients, free in each step, are too many to fit: matrices, or weights of all past states."""
    return scheme.whole_past or any(len(one.shape()) > 1 for one in scheme.euler_start)


def _in_units(measured: Weights, layout: MarchShape, firsts: int) -> tuple[Weights, NDArray[np.float64]]:
    """Divide the weights of evaluations by the largest in each channel; return these units, too."""
    last = measured.shape[1] - (layout.steps if layout.activated else 0)
    part = measured[:, firsts:last]
    units = np.abs(part).max((0, 1)) if part.size else np.ones(1)
    units = np.where(units == 0, 1, units)
    scaled = measured.copy()
    scaled[:, firsts:last] /= units
    return scaled, units


def _coefficients(scheme: Scheme, shapes: Sequence[tuple[int, ...]], values: NDArray[np.float64]) -> Coefficient:
    """Unpack the coefficients of a step from a flat vector."""
    if not scheme.euler_start:
        return float(values[0])
    parts = np.split(values, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
    return {
        one.name: part.reshape(shape)[()] for one, shape, part in zip(scheme.euler_start, shapes, parts, strict=True)
    }


def streams(measured: Weights, firsts: int, tolerance: float = 1e-5) -> int:
    """Return the number of streams of the smallest general linear method with this response.

    Later rows depend on the first states and on f_0 … f_n only through the streams after step n. Their number is the
    largest rank of the response's blocks below the diagonal (theorem of Ho and Kalman).
    """
    mean = measured.mean(-1)
    ranks = [
        int(np.linalg.matrix_rank(mean[n + 1 :, : firsts + n + 1], tol=tolerance * max(1.0, float(np.abs(mean).max()))))
        for n in range(len(mean) - 1)
    ]
    return max(ranks, default=1)


def as_channels(value: Coefficient) -> Coefficient:
    """Convert a network's coefficient to numpy: a scalar, one value for each channel, or a dict of arrays.

    Scalars are numpy scalars, which a scheme never treats as an exact 0 or 1, as in the network.
    """
    if isinstance(value, dict):
        return {name: _array(part)[()] for name, part in value.items()}
    array = _array(value).ravel()
    return array[0] if array.size == 1 else array


def _array(value: Coefficient) -> NDArray[np.float64]:
    if isinstance(value, list | tuple):
        return np.array([_array(part) for part in value])
    return np.asarray(value.detach().double().cpu() if hasattr(value, "detach") else value, dtype=np.float64)
