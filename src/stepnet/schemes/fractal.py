"""FractalNet's expansion rule as a Runge–Kutta method (paper, section 2.1).

    f_1(u) = u + dt f(u),    f_{c+1} = 1/2 k + 1/2 f_c ∘ f_c

`fractal` takes the identity for the short path `k`, as the paper's formula reads: order 2 is Heun's method; the
order of the deeper members is computed by `stepnet.analysis.order`. `full_fractal` is the fractal of Larsson et al.;
its short path is a separate step `u + dt f(u)`, and where several columns join, all are averaged at once, which for
three or more columns differs from the mean of two halves.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Annotated, ClassVar

from annotated_types import Ge, Le

from stepnet.arguments import checked
from stepnet.schemes.arithmetic import Coefficient, Difference, State, combine, is_number, mix
from stepnet.schemes.core import Equation, Past, Point, Scheme
from stepnet.schemes.scheme_registry import register_family, register_scheme

Columns = Annotated[int, Ge(1), Le(8)]  # 8: a step of 255 evaluations


class Fractal(Scheme):
    """`f_c` with the identity as the short path; it evaluates f on each of the 2^(c-1) levels of its one column.

    `k` holds, for each join in the order of `joins`, the weights of its paths, the shortest first; the default is their
    mean. A path of weight 0 is not computed.
    """

    reference = "Larsson, Maire, Shakhnarovich 2017 (FractalNet); paper, section 2.1"
    network: ClassVar[str] = "FractalNet"

    @checked
    def __init__(self, columns: Columns = 2) -> None:
        self.columns = columns
        self.stages = self.evaluations(columns)
        self.order = 2 if columns == 2 else 1
        self.name = f"fractal{columns}"

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        point, weights = past[0], self.means if k is None else k

        def f(c: int, v: State, time: Coefficient, evaluation: int, join: int) -> State:
            """`f_c(v)`, counting evaluations and joins from these numbers."""
            if c == 1:
                return _step(point, v, time, evaluation, dt)
            of_short, of_long = weights[join]
            short = v if is_number(of_short, 0) else self.short_path(point, v, time, evaluation, dt)
            if is_number(of_long, 0):
                return short
            evaluation += self.evaluations(c) - 2 * self.evaluations(c - 1)
            middle = f(c - 1, v, time, evaluation, join + 1)
            time = time + self.duration(c - 1)
            long = f(c - 1, middle, time, evaluation + self.evaluations(c - 1), join + 2 ** (c - 2))
            return long if is_number(of_short, 0) else mix(short, long, of_long)

        return Difference(f(self.columns, point.u, 0, 0, 0), point.u)

    def short_path(self, point: Point, v: State, time: Coefficient, evaluation: int, dt: Coefficient) -> State:
        """The other input of a join, beside `f_c ∘ f_c`."""
        return v

    def evaluations(self, c: int) -> int:
        """The number of evaluations of f in `f_c`."""
        return int(2 ** (c - 1))

    def duration(self, c: int) -> Coefficient:
        """The time that `f_c` takes, in steps: the mean of 0 and twice that of `f_{c-1}`."""
        return 1

    @property
    def joins(self) -> list[int]:
        """The c of each join, outer joins before inner ones."""
        return _levels(self.columns)

    def paths(self, c: int) -> int:
        """The number of paths in the join of `f_c`."""
        return 2

    @property
    def means(self) -> list[tuple[Coefficient, ...]]:
        """The weights at each join when nothing is dropped."""
        return [(Fraction(1, self.paths(c)),) * self.paths(c) for c in self.joins]


class ConvolvedFractal(Fractal):
    """`f_c` with a separate evaluation of f as the short path: the paper's `k_c *`, with `u + f(u)` as the convolution.

    With one f for all of them the paths take different times, and the mean is consistent with `2/(c+1) u' = f`.
    """

    identity_path: ClassVar[bool] = False

    def __init__(self, columns: Columns = 2) -> None:
        super().__init__(columns)
        self.order = 1
        self.name = f"convolved_fractal{columns}"

    @property
    def equation(self) -> Equation:
        return Equation(mass=Fraction(2, self.columns + 1))

    def short_path(self, point: Point, v: State, time: Coefficient, evaluation: int, dt: Coefficient) -> State:
        return _step(point, v, time, evaluation, dt)

    def evaluations(self, c: int) -> int:
        return int(2**c - 1)

    def duration(self, c: int) -> Coefficient:
        return Fraction(c + 1, self.columns + 1)


class FullFractal(Fractal):
    """Larsson's fractal: column j of c has `2^(j-1)` evaluations of f, and columns that meet are averaged all at once.

        columns_1(u) = [u + dt f(u)],    columns_c(u) = [u + dt f(u), *columns_{c-1}(f_{c-1}(u))]

    `f_c` is the mean of `columns_c`. They take different times, so that it is consistent with `c/(2^c - 1) u' = f`.
    """

    reference = "Larsson, Maire, Shakhnarovich 2017 (FractalNet)"
    identity_path: ClassVar[bool] = False

    def __init__(self, columns: int = 2) -> None:
        super().__init__(columns)
        self.order = 1
        self.name = f"full_fractal{columns}"

    @property
    def equation(self) -> Equation:
        return Equation(mass=1 / _base_steps(self.columns))

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        point, weights = past[0], self.means if k is None else k

        def f(c: int, v: State, time: Coefficient, evaluation: int, join: int) -> State:
            """`f_c(v)`, counting evaluations and joins from these numbers."""
            if c == 1:
                return _step(point, v, time, evaluation, dt)
            column_weights, join = weights[join], join + 1
            ends: list[tuple[Coefficient, State]] = []
            for column, weight in enumerate(column_weights):  # the next column starts where all deeper ones join
                if not is_number(weight, 0):
                    ends.append((weight, _step(point, v, time, evaluation, dt)))
                if all(is_number(deeper, 0) for deeper in column_weights[column + 1 :]):
                    break
                rest = c - 1 - column
                v = f(rest, v, time, evaluation + 1, join)
                time, join = time + self.duration(rest), join + len(_meetings(rest))
                evaluation += 1 + self.evaluations(rest)
            return combine(*ends)

        return Difference(f(self.columns, point.u, 0, 0, 0), point.u)

    def evaluations(self, c: int) -> int:
        return int(2**c - 1)

    def duration(self, c: int) -> Coefficient:
        return _base_steps(c) / _base_steps(self.columns)

    @property
    def joins(self) -> list[int]:
        return _meetings(self.columns)

    def paths(self, c: int) -> int:
        return c

    @property
    def ends(self) -> list[int]:
        """The number of the last evaluation of each column, the shortest column first."""
        return [2**self.columns - 2**depth for depth in range(self.columns, 0, -1)]


def _levels(c: int) -> list[int]:
    """The joins of `f_c = 1/2 k + 1/2 f_{c-1} ∘ f_{c-1}`."""
    return [] if c == 1 else [c, *_levels(c - 1), *_levels(c - 1)]


def _meetings(c: int) -> list[int]:
    """The joins of Larsson's `f_c`: the last one, and those of the `f_{c-1}, f_{c-2}, …` in its columns."""
    return [] if c == 1 else [c, *(join for depth in range(c - 1, 0, -1) for join in _meetings(depth))]


def _base_steps(c: int) -> Fraction:
    """The length of the mean of c columns, in steps `u + dt f(u)`: `c T_c = 1 + 2 (c - 1) T_{c-1}`."""
    return Fraction(2**c - 1, c)


def _step(point: Point, v: State, time: Coefficient, evaluation: int, dt: Coefficient) -> State:
    slope = point.f if evaluation == 0 else point.rhs(v, time, evaluation)
    return combine((1, v), (dt, slope))


register_scheme("fractal2", aliases=("fractal",))(partial(Fractal, 2))
register_scheme("fractal3")(partial(Fractal, 3))
register_family("fractal", Fractal)
register_scheme("full_fractal3", aliases=("full_fractal",))(partial(FullFractal, 3))
register_scheme("full_fractal4")(partial(FullFractal, 4))
register_family("full_fractal", FullFractal)
