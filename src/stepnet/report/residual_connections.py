"""Residual connections as general linear methods: U, V, B and what follows from them, row by row.

    Y = U y_n,    y_{n+1} = V y_n + B dt f(Y)

The matrices come from the one step on `f = lambda u` that analysis takes of every scheme, `M(z) = V + z B U`: none of
them is typed here, and LM is one row among the others. Of a method that reads older f, U is that of linear f.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy

from stepnet.analysis import SchemeAnalysis, analyse, plain, z, zero_stable_text
from stepnet.schemes import Scheme, get_scheme


@dataclass(frozen=True)
class GeneralLinearRow:
    """One scheme of the table."""

    scheme: str
    U: str
    V: str
    B: str
    zero_stable: str  # where
    equation: str
    order: str
    cost: str  # of a step: evaluations of f, and how many states are kept
    parameters: str  # that a network learns in each step
    source: str


def residual_schemes() -> dict[str, Scheme]:
    """Euler, LM and the general linear methods in use as residual connections, with symbols for coefficients."""
    a, b, p = sympy.symbols("a b p", real=True)
    entries = {name: sympy.symbols(names, real=True) for name, names in (("U", "U1 U2"), ("B", "B1 B2"))}
    v = sympy.symbols("V11 V12 V21 V22", real=True)
    options: dict[str, dict[str, Any]] = {
        "euler": {},
        "lm": {},
        "multistep": {"steps": 2, "a": (a,), "b": (1 - b, b)},
        "x0": {},
        "momentum": {},
        "nesterov": {},
        "dense": {"a": (1 - a, a)},
        "hyper": {**entries, "V": (v[:2], v[2:])},
        "mhc": {"V": ((1 - p, p), (p, 1 - p))},
    }
    return {name: get_scheme(name, **values) for name, values in options.items()}


def general_linear_table() -> list[GeneralLinearRow]:
    """One row for each of the `residual_schemes`."""
    return [_row(name, analyse(scheme if scheme.arguments else name)) for name, scheme in residual_schemes().items()]


def _row(name: str, analysis: SchemeAnalysis) -> GeneralLinearRow:
    matrix, scheme = analysis.companion, analysis.scheme
    u, b = _factors(matrix.diff(z))
    v = matrix.subs(z, 0)
    free = len(v.free_symbols) > 2  # conditions on more than two are no line of a table
    mass = 0 if free else analysis.equation.mass
    return GeneralLinearRow(
        scheme=name,
        U=_text(u),
        V=_text(v),
        B=_text(b),
        zero_stable="eigenvalues of V in the unit disc, simple on its circle" if free else zero_stable_text(analysis),
        equation=analysis.equation_line if mass != 0 else "none, unless V q = q and U q = 1",
        order=str(analysis.order) if mass != 0 else "1 where there is one" if free else "0",
        cost=f"1 f, {'all states' if scheme.whole_past else _count(matrix.rows)}",
        parameters=_parameters(name),
        source=scheme.reference,
    )


def _factors(product: sympy.Matrix) -> tuple[sympy.Matrix, sympy.Matrix]:
    """The row U and the column B of `B U`."""
    row = next(n for n in range(product.rows) if any(product.row(n)))
    column = next(n for n in range(product.cols) if product[row, n] != 0)
    u = product.row(row)
    b = (product.col(column) / product[row, column]).applyfunc(sympy.cancel)
    scale = product[row, column] if product[row, column].is_number else sympy.Integer(1)
    common = sympy.gcd(tuple(u)) if not product[row, column].is_number else scale
    return (u / common).applyfunc(sympy.cancel), (b * common).applyfunc(sympy.cancel)


def _parameters(name: str) -> str:
    scheme = get_scheme(name)
    if scheme.whole_past:
        return "n + 1 in step n"
    if not scheme.learned:
        return str(int(scheme.trainable))
    count = sum(sympy.prod(one.shape()) for one in scheme.learned)
    return f"{count}, with s streams s^2 + 2 s" if scheme.stacked else str(count)


def _count(states: int) -> str:
    return f"{states} state{'' if states == 1 else 's'}"


def _text(matrix: sympy.Matrix) -> str:
    """`(1, 0)`, or `[[1 - k, k], [1, 0]]`."""
    rows = [", ".join(plain(entry) for entry in row) for row in matrix.tolist()]
    if matrix.rows == 1 or matrix.cols == 1:
        return f"({', '.join(plain(entry) for entry in matrix)})" if len(matrix) > 1 else plain(matrix[0])
    return f"[{', '.join(f'[{row}]' for row in rows)}]"
