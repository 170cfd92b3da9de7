"""Residual connections as general linear methods: U, A, V, B and what follows from them, row by row.

    Y = U y_n + A dt f(Y),    y_{n+1} = V y_n + B dt f(Y)

Where a step has one evaluation, A is 0, and the matrices come from the one step on `f = lambda u` that analysis takes
of every scheme, `M(z) = V + z B U`. Those of a splitting come from the plan of a step, an entry for each evaluation of
f or g. None of them is typed here, and LM is one row among the others. Of a method that reads older f, U is that of
linear f; of coefficients that depend on the state, these are the static part.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import sympy

from stepnet.analysis import SchemeAnalysis, analyse, plain, z, zero_stable_text
from stepnet.errors import counted
from stepnet.schemes import Quantity, Scheme, full_step, get_scheme, symbol


@dataclass(frozen=True)
class GeneralLinearRow:
    """One scheme of the table."""

    scheme: str
    U: str
    A: str
    V: str
    B: str
    zero_stable: str  # where
    equation: str
    order: str
    cost: str  # of a step: evaluations of f, and how many states are kept
    parameters: str  # that a network learns in each step, with s streams of d features
    source: str


def residual_schemes() -> dict[str, Scheme]:
    """Euler, splittings, LM and the general linear methods in use, with symbols for coefficients."""
    a, b, p = sympy.symbols("a b p", real=True)
    entries = {name: sympy.symbols(names, real=True) for name, names in (("U", "U1 U2"), ("B", "B1 B2"))}
    v = sympy.symbols("V11 V12 V21 V22", real=True)
    options: dict[str, dict[str, Any]] = {
        "euler": {},
        "parallel": {},
        "lie_trotter": {},
        "strang": {},
        "lm": {},
        "multistep": {"steps": 2, "a": (a,), "b": (1 - b, b)},
        "x0": {},
        "momentum": {},
        "nesterov": {},
        "dense": {"a": (1 - a, a)},
        "hyper": {**entries, "V": (v[:2], v[2:])},
        "dynamic_hyper": {**entries, "V": (v[:2], v[2:])},
        "mhc": {"V": ((1 - p, p), (p, 1 - p))},
        "altup": {"V": ((1 - p, p), (p, 1 - p))},
    }
    return {name: get_scheme(name, **values) for name, values in options.items()}


def general_linear_table() -> list[GeneralLinearRow]:
    """One row for each of the `residual_schemes`."""
    return [_row(name, analyse(scheme if scheme.arguments else name)) for name, scheme in residual_schemes().items()]


def _row(name: str, analysis: SchemeAnalysis) -> GeneralLinearRow:
    matrix, scheme = analysis.companion, analysis.scheme
    v = matrix.subs(z, 0)
    u, a, b = _tableau(scheme) if scheme.splits else _factors(matrix.diff(z))
    free = len(v.free_symbols) > 2  # conditions on more than two are no line of a table
    mass = 0 if free else analysis.equation.mass
    return GeneralLinearRow(
        scheme=name,
        U=_text(u),
        A=_text(a),
        V=_text(v),
        B=_text(b),
        zero_stable="powers of V bounded" if free else zero_stable_text(analysis),
        equation=analysis.equation_line if mass != 0 else "m u' = f if V q = q, U q = 1" if free else "none",
        order=str(analysis.order) if mass != 0 else "1" if free else "0",
        cost=f"{_evaluations(scheme)}, {'all states' if scheme.whole_past else counted(matrix.rows, 'state')}",
        parameters=_parameters(scheme),
        source=scheme.reference,
    )


def _tableau(scheme: Scheme) -> tuple[sympy.Matrix, sympy.Matrix, sympy.Matrix]:
    """U, A and B of a one-step method, from its plan: a row for each evaluation."""
    step = full_step(scheme)
    results = [one.result for one in step.evaluations]
    totals = (*(one.argument for one in step.evaluations), *step.new)
    sums = [{quantity: weight.subs(symbol("dt"), 1) for quantity, weight in terms} for terms in totals]
    u = sympy.Matrix([[total.get(Quantity("u", 0), 0) for total in sums[:-1]]])
    *a, b = ([total.get(result, 0) for result in results] for total in sums)
    return u, sympy.Matrix(a), sympy.Matrix([b])


def _factors(product: sympy.Matrix) -> tuple[sympy.Matrix, sympy.Matrix, sympy.Matrix]:
    """The row U, A = 0, and the column B, of `B U`."""
    row = next(n for n in range(product.rows) if any(product.row(n)))
    column = next(n for n in range(product.cols) if product[row, n] != 0)
    u = product.row(row)
    b = (product.col(column) / product[row, column]).applyfunc(sympy.cancel)
    scale = product[row, column] if product[row, column].is_number else sympy.Integer(1)
    common = sympy.gcd(tuple(u)) if not product[row, column].is_number else scale
    return (u / common).applyfunc(sympy.cancel), sympy.zeros(1, 1), (b * common).applyfunc(sympy.cancel)


def _parameters(scheme: Scheme) -> str:
    """`3`, or `2 s + s^2` from the shapes of U, V and B."""
    if scheme.whole_past:
        return "n + 1 in step n"
    if not scheme.learned:
        return str(int(scheme.trainable))
    if not scheme.stacked:
        return str(sum(math.prod(one.shape()) for one in scheme.learned))
    s, d = sympy.symbols("s d")
    dimensions = [(len(one.shape()), int(one.varies)) for one in scheme.learned]
    return plain(sympy.expand(sum(s**n + varies * (1 + d * s ** (n - 1)) for n, varies in dimensions)))


def _evaluations(scheme: Scheme) -> str:
    """`1 f`, or `1 f and 2 g`."""
    newest = (one.result for one in full_step(scheme).evaluations if one.result.n == scheme.steps - 1)
    counts = Counter(result.name for result in newest)
    return " and ".join(f"{counts[name]} {name}" for name in scheme.functions)


def _text(matrix: sympy.Matrix) -> str:
    """`(1, 0)`, or `[[1 - k, k], [1, 0]]`, or `0`."""
    if not any(matrix):
        return "0"
    rows = [", ".join(plain(entry) for entry in row) for row in matrix.tolist()]
    if matrix.rows == 1 or matrix.cols == 1:
        return f"({', '.join(plain(entry) for entry in matrix)})" if len(matrix) > 1 else plain(matrix[0])
    return f"[{', '.join(f'[{row}]' for row in rows)}]"
