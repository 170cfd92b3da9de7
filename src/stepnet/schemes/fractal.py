"""FractalNet's expansion rule as a Runge–Kutta method (paper, section 2.1).

    f_1(u) = u + dt f(u),    f_{c+1} = 1/2 k + 1/2 f_c ∘ f_c

with the short path `k` the identity. Order 2 is Heun's method; what order the deeper members have is what
`stepnet.analysis.order` finds, not what their name suggests.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import ClassVar

from stepnet.errors import UserError
from stepnet.schemes.arithmetic import Coefficient, State, combine
from stepnet.schemes.core import Past, Scheme
from stepnet.schemes.registry import register_family, register_scheme
from stepnet.schemes.runge_kutta import half


class Fractal(Scheme):
    """`f_c`, which evaluates f once on each of the 2^(c-1) levels of its deepest column."""

    reference = "Larsson, Maire, Shakhnarovich 2017 (FractalNet); paper, section 2.1"
    network: ClassVar[str] = "FractalNet"

    def __init__(self, columns: int = 2) -> None:
        if not isinstance(columns, int) or columns < 1:
            raise UserError(f"fractal of order {columns!r}: the order is a whole number from 1 up")
        self.columns = columns
        self.stages = 2 ** (columns - 1)
        self.order = 2 if columns == 2 else 1
        self.name = f"fractal{columns}"

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        evaluation = count()

        def displacement(c: int, moved: State, node: int) -> State:
            """`f_c(v) - v` at `v = u_n + moved`: half the displacement of two `f_{c-1}` in a row, each over `dt`."""
            if c == 1:
                i = next(evaluation)
                slope = past[0].f if i == 0 else past[0].rhs(combine((1, past[0].u), (1, moved)), node, i)
                return combine((dt, slope))
            first = displacement(c - 1, moved, node)
            second = displacement(c - 1, combine((1, moved), (1, first)), node + 1)
            return combine((half, first), (half, second))

        return displacement(self.columns, 0, 0)


register_scheme("fractal2", aliases=("fractal",))(partial(Fractal, 2))
register_scheme("fractal3")(partial(Fractal, 3))
register_family("fractal", Fractal)
