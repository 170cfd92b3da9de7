"""FractalNet's expansion rule as a Runge–Kutta method (paper, section 2.1).

    f_1(u) = u + dt f(u),    f_{c+1} = 1/2 k + 1/2 f_c ∘ f_c

`fractal` takes the identity for the short path `k`, as the paper's formula reads: order 2 is Heun's method; what order
the deeper members have is what `stepnet.analysis.order` finds, not what their name suggests. `full_fractal` is the rule
of Larsson et al., whose short path is a step `u + dt f(u)` of its own.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import ClassVar

from stepnet.errors import check_count
from stepnet.schemes.arithmetic import Coefficient, Difference, State, combine, is_number, mix
from stepnet.schemes.core import Equation, Past, Point, Scheme
from stepnet.schemes.scheme_registry import register_family, register_scheme

LARGEST = 8  # columns: a step of 255 evaluations


class Fractal(Scheme):
    """`f_c` with the identity as the short path; it evaluates f on each of the 2^(c-1) levels of its one column.

    `k`, where given, holds the weight of the long path at each of the `2^(c-1) - 1` joins, in the order in which the
    recursion meets them: 1/2 is the mean, 0 and 1 drop one of the two paths, which is then not computed.
    """

    reference = "Larsson, Maire, Shakhnarovich 2017 (FractalNet); paper, section 2.1"
    network: ClassVar[str] = "FractalNet"

    def __init__(self, columns: int = 2) -> None:
        check_count("columns of a fractal", columns, most=LARGEST)
        self.columns = columns
        self.stages = self.evaluations(columns)
        self.order = 2 if columns == 2 else 1
        self.name = f"fractal{columns}"

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        point = past[0]

        def f(c: int, v: State, time: Coefficient, evaluation: int, join: int) -> State:
            """`f_c(v)`, whose first evaluation and first join have these numbers."""
            if c == 1:
                return _step(point, v, time, evaluation, dt)
            weight = Fraction(1, 2) if k is None else k[join]
            short = v if is_number(weight, 1) else self.short_path(point, v, time, evaluation, dt)
            if is_number(weight, 0):
                return short
            evaluation += self.evaluations(c) - 2 * self.evaluations(c - 1)
            middle = f(c - 1, v, time, evaluation, join + 1)
            time = time + self.duration(c - 1)
            long = f(c - 1, middle, time, evaluation + self.evaluations(c - 1), join + 2 ** (c - 2))
            return mix(short, long, weight) if not is_number(weight, 1) else long

        return Difference(f(self.columns, point.u, 0, 0, 0), point.u)

    def short_path(self, point: Point, v: State, time: Coefficient, evaluation: int, dt: Coefficient) -> State:
        """The other input of a join, beside `f_c ∘ f_c`."""
        return v

    def evaluations(self, c: int) -> int:
        """How often `f_c` evaluates f."""
        return int(2 ** (c - 1))

    def duration(self, c: int) -> Coefficient:
        """The time that `f_c` takes, in steps: the mean of 0 and twice that of `f_{c-1}`."""
        return 1


class FullFractal(Fractal):
    """`f_c` with a step of its own as the short path: column j of its c columns has 2^(j-1) evaluations of f.

    The columns take different times, so that the mean of all is consistent with `2/(c+1) u' = f`.
    """

    reference = "Larsson, Maire, Shakhnarovich 2017 (FractalNet)"
    identity_path: ClassVar[bool] = False

    def __init__(self, columns: int = 2) -> None:
        super().__init__(columns)
        self.order = 1
        self.name = f"full_fractal{columns}"

    @property
    def equation(self) -> Equation:
        return Equation(mass=Fraction(2, self.columns + 1))

    def short_path(self, point: Point, v: State, time: Coefficient, evaluation: int, dt: Coefficient) -> State:
        return _step(point, v, time, evaluation, dt)

    def evaluations(self, c: int) -> int:
        return int(2**c - 1)

    def duration(self, c: int) -> Coefficient:
        return Fraction(c + 1, self.columns + 1)


def _step(point: Point, v: State, time: Coefficient, evaluation: int, dt: Coefficient) -> State:
    slope = point.f if evaluation == 0 else point.rhs(v, time, evaluation)
    return combine((1, v), (dt, slope))


register_scheme("fractal2", aliases=("fractal",))(partial(Fractal, 2))
register_scheme("fractal3")(partial(Fractal, 3))
register_family("fractal", Fractal)
register_scheme("full_fractal3", aliases=("full_fractal",))(partial(FullFractal, 3))
register_scheme("full_fractal4")(partial(FullFractal, 4))
register_family("full_fractal", FullFractal)
