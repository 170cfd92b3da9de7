"""Explicit Runge–Kutta methods, each a tableau that checks itself when built (paper, appendix A.2).

v_i     = u_n + dt sum_{j<i} a_ij f(t_n + c_j dt, v_j)
u_{n+1} = u_n + dt sum_i b_i f(t_n + c_i dt, v_i)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from stepnet.arguments import Count, checked, shown
from stepnet.errors import UserError
from stepnet.schemes.arithmetic import Coefficient, State, combine, is_finite, scale
from stepnet.schemes.core import Past, Scheme
from stepnet.schemes.scheme_registry import register_scheme

TableauRow = tuple[Coefficient, ...]


@dataclass(frozen=True)
class Tableau:
    """A Butcher tableau: `a` strictly lower triangular, `b` summing to one, `c_i = sum_j a_ij`."""

    a: tuple[TableauRow, ...]
    b: TableauRow

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "a", tuple(tuple(row) for row in self.a))  # lists and arrays are accepted
            object.__setattr__(self, "b", tuple(self.b))
            if any(getattr(entry, "shape", ()) for row in (*self.a, self.b) for entry in row):
                raise TypeError
        except TypeError:
            raise UserError(f"tableau a = {shown(self.a)}, b = {shown(self.b)}: expected rows of numbers") from None
        if not self.b or len(self.a) != len(self.b):
            raise UserError(f"tableau has {len(self.a)} rows in a and {len(self.b)} weights in b: they must agree")
        for i, row in enumerate(self.a):
            beyond = [entry for entry in row[i:] if entry != 0]
            if beyond:
                raise UserError(
                    f"tableau is not explicit: row {i + 1} of a has {beyond[0]} on or right of the diagonal"
                )
            if len(row) < i:
                raise UserError(f"tableau row {i + 1} of a has {len(row)} entries: expected at least {i}")
            if not all(is_finite(entry) for entry in (*row, self.b[i])):
                raise UserError(f"tableau row {i + 1} is a = {row}, b = {self.b[i]}: expected finite numbers")
        total = sum(self.b)
        if abs(total - 1) > 1e-12:
            raise UserError(f"tableau is not consistent: b sums to {total}, expected 1")

    @property
    def c(self) -> TableauRow:
        """The abscissae. They are row sums, so that `f(t, u)` and its autonomous form give the same step."""
        return tuple(sum(row[:i]) for i, row in enumerate(self.a))

    def __str__(self) -> str:
        """Format as in textbooks: `c | a` above a line, `b` below it."""
        c, size = self.c, len(self.b)
        rows = [[str(c[i]), *(str(entry) for entry in row[:i])] for i, row in enumerate(self.a)]
        rows = [[*row, *([""] * (size + 1 - len(row)))] for row in (*rows, ["", *map(str, self.b)])]
        widths = [max(len(row[j]) for row in rows) for j in range(size + 1)]
        lines = [
            f"{row[0]:>{widths[0]}} | " + "  ".join(f"{x:>{w}}" for x, w in zip(row[1:], widths[1:], strict=True))
            for row in rows
        ]
        rule = f"{'-' * widths[0]}-+-{'-' * (len(lines[-1]) - widths[0] - 3)}"
        return "\n".join(line.rstrip() for line in (*lines[:-1], rule, lines[-1]))


class RungeKutta(Scheme):
    """Any explicit Runge–Kutta method, from its tableau."""

    tableau: Tableau

    @checked
    def __init__(self, tableau: Tableau | None = None, order: Count | None = None) -> None:
        if tableau is None and not hasattr(self, "tableau"):
            raise UserError("tableau = None: expected the Tableau of the method")
        self.tableau = tableau or self.tableau
        self.order = order or self.order
        self.stages = len(self.tableau.b)

    def __repr__(self) -> str:
        rows = "; ".join(" ".join(map(str, row[:i])) for i, row in enumerate(self.tableau.a) if i)
        return f"{self.name}(" + (f"a = {rows}, " if rows else "") + f"b = {' '.join(map(str, self.tableau.b))})"

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        point, tableau = past[0], self.tableau
        slopes = [point.f]
        for i in range(1, self.stages):
            terms = zip(tableau.a[i], slopes, strict=False)
            stage = combine((1, point.u), *((scale(a, dt), f) for a, f in terms))
            slopes.append(point.rhs(stage, tableau.c[i], i))
        return combine(*((scale(b, dt), f) for b, f in zip(tableau.b, slopes, strict=True)))


half, third, sixth = Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)


@register_scheme("euler", aliases=("forward_euler", "rk1"))
class Euler(RungeKutta):
    """Forward Euler, `u_n + dt f(u_n)`: ResNet and ResNeXt."""

    reference = "Euler 1768; E 2017 (the network)"
    network: ClassVar[str] = "ResNet, ResNeXt"
    tableau = Tableau(((),), (1,))
    order = 1


@register_scheme("heun", aliases=("heun2", "rk2"))
class Heun(RungeKutta):
    """The explicit trapezoidal rule, the paper's RK2; `fractal2` is the same map."""

    reference = "Heun 1900; paper, appendix A.2"
    tableau = Tableau(((), (1,)), (half, half))
    order = 2


@register_scheme("midpoint", aliases=("explicit_midpoint",))
class Midpoint(RungeKutta):
    """The explicit midpoint rule, `u_n + dt f(u_n + dt/2 f(u_n))`."""

    reference = "Runge 1895"
    tableau = Tableau(((), (half,)), (0, 1))
    order = 2


@register_scheme("rk4", aliases=("kutta4", "classical_rk"))
class RK4(RungeKutta):
    """The classical method of order four."""

    reference = "Kutta 1901"
    tableau = Tableau(((), (half,), (0, half), (0, 0, 1)), (sixth, third, third, sixth))
    order = 4


@register_scheme("rk4_38", aliases=("three_eighths",))
class ThreeEighths(RungeKutta):
    """Kutta's 3/8 rule, which torchdiffeq calls `rk4`."""

    reference = "Kutta 1901"
    tableau = Tableau(
        ((), (third,), (-third, 1), (1, -1, 1)),
        (Fraction(1, 8), Fraction(3, 8), Fraction(3, 8), Fraction(1, 8)),
    )
    order = 4
