"""The analysis of one scheme: each fact is computed on first access and cached.

    lm = stepnet.analyse("lm")
    lm.order, lm.zero_stable, lm.stability_interval      # 1, Interval.Lopen(-1, 1), 2 - 2*k
    print(lm)                                            # what `stepnet scheme lm` prints

The functions below the class are shortcuts for one fact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated

import sympy
from annotated_types import Ge, Le
from numpy.typing import ArrayLike

from stepnet.analysis.accuracy import STEPS, Convergence, convergence, order_of_consistency
from stepnet.analysis.fact_sheet import describe_scheme, scheme_align, scheme_values
from stepnet.analysis.growth_factors import companion_matrix, minimal_polynomial
from stepnet.analysis.modified import Form, derivative_series, evaluates_between_states, modified
from stepnet.analysis.notation import Line, amplification_line, modified_line, plain_equation, step_lines
from stepnet.analysis.stability import (
    Array,
    Region,
    Verdict,
    axis_limit,
    largest_root,
    region_on_grid,
    root_condition,
    stable_at,
)
from stepnet.analysis.symbols import subject, vanishes, z
from stepnet.arguments import Count, checked
from stepnet.errors import UserError
from stepnet.schemes import Coefficient, Equation, GeneralLinear, Scheme, parts_of

Extent = tuple[float, float, float, float]
GridSize = Annotated[int, Ge(2), Le(10_000)]
EXTENT: Extent = (-4.5, 2.0, -3.25, 3.25)  # default of a region: left, right, bottom, top


class SchemeAnalysis:
    """What theory says of a scheme, from running it on symbols, rooted trees and the linear test equation.

    A name stands for the whole family, with `k` a symbol. `analyse("lm", k=-0.5)`, and a scheme built with a number,
    are analysed at that number, as a rational.
    """

    def __init__(self, scheme: str | Scheme, **parameters: Coefficient) -> None:
        self.scheme = subject(scheme, **parameters)
        self._modified: dict[tuple[int, Form | None], sympy.Eq | tuple[sympy.Eq, ...]] = {}

    @cached_property
    def equation(self) -> Equation:
        """The equation with which it is consistent: `(1 + k) u' = f` for `lm`."""
        return self.scheme.equation

    @property
    def equation_line(self) -> str:
        """The equation as text."""
        return plain_equation(self.equation)

    @cached_property
    def order(self) -> int:
        """The largest p with a local error of `O(dt^(p+m))` on `mass u^(m) = f(t, u)`, for every smooth system.

        The equation is the scheme's. With a symbol k, the order is that of almost every k. Order 0: inconsistent.
        """
        return self.order_against(self.equation)

    def order_against(self, equation: Equation) -> int:
        """The order against another equation: 0 for `lm` against `u' = f`."""
        if isinstance(self.scheme, GeneralLinear):
            return self._order_on_linear(equation)
        return order_of_consistency(self.scheme, equation)

    def _order_on_linear(self, equation: Equation) -> int:
        """Return the order with several streams: the power of dt of the first correction, if `c_1 = mass`.

        It is that for linear f; order 1 is consistency, which holds for every f.
        """
        if not self.equation.mass:
            return 0
        (_, mass), (n, _) = derivative_series(self.amplification, 2)
        return n - 1 if vanishes(mass - equation.mass) else 0

    @cached_property
    def companion(self) -> sympy.Matrix:
        """The matrix that takes `(u_n, u_{n-1}, …)` to `(u_{n+1}, u_n, …)` on the linear test equation."""
        return companion_matrix(self.scheme)

    @cached_property
    def amplification(self) -> sympy.Poly:
        """`p(zeta, z)`, whose roots in zeta are the growth factors at `z = dt^m lambda`. `zeta - 1 - z` for `euler`."""
        return minimal_polynomial(self.companion)

    @cached_property
    def zero_stable(self) -> Verdict:
        """The root condition for dt -> 0: True or False, or with a symbol k the set of k for which it holds.

        Roots lie in the closed unit disc, and on the circle they are simple; for an equation of order m they may be
        m-fold there (Henrici), so `leapfrog` may have a double root at 1. Roots are those of the minimal polynomial of
        V = M(0): streams that are independent at z = 0 do not count as a multiple root.
        """
        return root_condition(self.companion.subs(z, 0), self.equation.derivative)

    @cached_property
    def stability_interval(self) -> sympy.Expr:
        """The largest x with `-x < z < 0` stable: an exact number; `oo` when the whole negative axis is.

        2 for `euler`; `2 - 2 k` for `lm` with a symbolic k, which holds where it is zero-stable (`Piecewise` if a
        closed end of that set differs from its interior). Isolated points, where roots on the circle meet, are not
        counted: `stable` says whether an end belongs to the interval.
        """
        return axis_limit(self.amplification, sympy.Integer(-1), self.zero_stable)

    @cached_property
    def imaginary_limit(self) -> sympy.Expr:
        """The largest y with `z = i s` stable for `0 < s < y`: the limit for a pure oscillation."""
        return axis_limit(self.amplification, sympy.I, self.zero_stable)

    @checked
    def stable(self, at: sympy.Expr | complex) -> bool:
        """The root condition at one z, exactly; with a symbol k (which `at` may contain), for almost every k."""
        return stable_at(self.amplification, at, self.zero_stable)

    def growth(self, values: ArrayLike) -> Array:
        """The largest |root| of the amplification polynomial at each z: the asymptotic growth factor of one step."""
        symbols = self.amplification.free_symbols_in_domain
        if symbols:
            symbol = min(map(str, symbols))
            raise UserError(f"scheme {self.scheme.name!r} has a symbol {symbol}: give a number, as {symbol}=-0.5")
        return largest_root(self.amplification, values)

    @checked
    def stability_region(self, extent: Extent = EXTENT, n: GridSize = 201) -> Region:
        """The largest |root| on an n by n grid over `extent = (left, right, bottom, top)`, for plotting."""
        return region_on_grid(self.growth, extent, n)

    @checked
    def modified_equation(self, terms: Count = 2, form: Form | None = None) -> sympy.Eq | tuple[sympy.Eq, ...]:
        """The modified equation with its first `terms` non-zero terms: the equation itself, then the corrections.

        `form` is "derivatives", `(1 + k) u' + (1 - k) dt/2 u'' = f` for `lm`, or "differentials",
        `u' = f - dt/2 f'f` for `euler`; by default, derivatives for a linear multistep method. A partitioned scheme
        gives a pair of equations. If a multistep method evaluates f between its states (`between_states`), the
        derivatives are those for linear f.
        """
        if (terms, form) not in self._modified:
            self._modified[terms, form] = modified(self.scheme, self.amplification, terms, form)
        return self._modified[terms, form]

    @cached_property
    def between_states(self) -> bool:
        """Whether the step evaluates f elsewhere than at a state, such as `f((u_n + u_{n-1})/2)`."""
        return evaluates_between_states(self.scheme)

    def convergence(self, steps: Sequence[int] = STEPS) -> Convergence:
        """Measure the order: the errors with several step sizes, and their slope."""
        return convergence(self.scheme, steps)

    @cached_property
    def step_lines(self) -> list[Line]:
        """The step as equations."""
        return step_lines(self.scheme)

    @cached_property
    def amplification_line(self) -> Line:
        """The equation for the growth factors."""
        return amplification_line(self.amplification)

    def modified_lines(self, terms: int = 2) -> list[Line]:
        """The modified equation as equations: one line, two for a pair."""
        parameters = self.amplification.free_symbols_in_domain
        return [modified_line(equation, parameters) for equation in parts_of(self.modified_equation(terms))]

    @cached_property
    def latex(self) -> str:
        """The step, the growth factors and the modified equation, aligned for a paper."""
        return scheme_align(self)

    def as_dict(self) -> dict[str, object]:
        """Every fact as a plain value, for JSON: expressions are strings that sympy reads back."""
        return scheme_values(self)

    def __str__(self) -> str:
        return str(describe_scheme(self))

    def _repr_html_(self) -> str:
        return describe_scheme(self).html

    def __repr__(self) -> str:
        return f"<analysis of {self.scheme}>"


@checked
def analyse(scheme: str | Scheme, **parameters: Coefficient) -> SchemeAnalysis:
    """Analyse a scheme: `analyse("lm")` for every k, `analyse("lm", k=-0.5)` for one."""
    return SchemeAnalysis(scheme, **parameters)


@checked
def order(scheme: str | Scheme, against: Equation | None = None) -> int:
    """Return `analyse(scheme).order`, or the order against another equation.

    `order("lm", against=Equation())` is 0, since `lm` does not solve `u' = f`.
    """
    analysis = analyse(scheme)
    return analysis.order if against is None else analysis.order_against(against)


@checked
def zero_stable(scheme: str | Scheme) -> Verdict:
    """Return `analyse(scheme).zero_stable`."""
    return analyse(scheme).zero_stable


@checked
def stability_interval(scheme: str | Scheme) -> sympy.Expr:
    """Return `analyse(scheme).stability_interval`."""
    return analyse(scheme).stability_interval


@checked
def stability_region(scheme: str | Scheme, extent: Extent = EXTENT, n: GridSize = 201) -> Region:
    """Return `analyse(scheme).stability_region(extent, n)`."""
    return analyse(scheme).stability_region(extent, n)


@checked
def modified_equation(
    scheme: str | Scheme, terms: Count = 2, form: Form | None = None
) -> sympy.Eq | tuple[sympy.Eq, ...]:
    """Return `analyse(scheme).modified_equation(terms, form)`."""
    return analyse(scheme).modified_equation(terms, form)
