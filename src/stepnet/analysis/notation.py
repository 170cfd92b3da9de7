"""A scheme's step in mathematical notation, read from its plan.

If f is evaluated at states only, it is written out, `dt f(u_n)`; otherwise the evaluations are named `f_1, f_2, …`
and listed before the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import sympy

from stepnet.analysis.symbols import dt, z, zeta
from stepnet.schemes import Equation, Quantity, Scheme, Terms, full_step

LineTerms = tuple[tuple[sympy.Expr, sympy.Expr], ...]  # (coefficient, symbol), in reading order


@dataclass(frozen=True)
class Line:
    """`left = right`, or `left = f(right)`: each side a linear combination of symbols."""

    left: LineTerms
    right: LineTerms
    function: str = ""

    def __str__(self) -> str:
        left, right = _sum(self.left, plain), _sum(self.right, plain)
        return f"{left} = {self.function}({right})" if self.function else f"{left} = {right}"

    @property
    def latex(self) -> str:
        """The line in LaTeX."""
        left, right = _sum(self.left, _latex), _sum(self.right, _latex)
        return rf"{left} = {self.function}\left({right}\right)" if self.function else f"{left} = {right}"


def plain(expression: sympy.Expr) -> str:
    """Format an expression in plain characters: `dt/2`, `1 - k`, `3 dt^2/4`."""
    text = str(sympy.sstr(expression, order="rev-lex")).replace("**", "^").replace("*", " ")
    return text.replace("^{(", "^(").replace(")}", ")")  # a fourth derivative is u^{(4)} in LaTeX only


def plain_equation(equation: Equation) -> str:
    """Format the equation that a scheme solves: `(1 + k) u' = f`."""
    mass = sympy.sympify(equation.mass)
    return str(equation if mass == 1 else replace(equation, mass=plain(mass)))


def step_lines(method: Scheme) -> list[Line]:
    """Return the lines of one step; the last (for a pair, the last two) give the new state."""
    step, n = full_step(method), method.steps - 1
    new = [Quantity(part, n + 1) for part in method.parts]
    symbols = {q: _state(q.name, q.n - n) for q in (*new, *step.reads) if q.name not in "fg"}
    states = {_one(symbol): symbol for symbol in symbols.values()}
    calls: dict[tuple[str, LineTerms], sympy.Symbol] = {}  # evaluations with the same argument are written once
    for evaluation in step.evaluations:
        name = evaluation.result.name
        call = name, _in_symbols(evaluation.argument, symbols)
        symbols[evaluation.result] = calls.setdefault(call, sympy.Symbol(f"{name}_{len(calls) + 1}"))
    results = [Line(_one(symbols[q]), _in_symbols(total, symbols)) for q, total in zip(new, step.new, strict=True)]
    states |= {line.right: symbols[q] for q, line in zip(new, results, strict=True)}
    if not all(argument in states for _, argument in calls):
        return [Line(_one(symbol), argument, name) for (name, argument), symbol in calls.items()] + results
    written = {symbol: sympy.Function(name)(states[argument]) for (name, argument), symbol in calls.items()}
    return [Line(line.left, tuple((c, written.get(s, s)) for c, s in line.right)) for line in results]


def amplification_line(polynomial: sympy.Poly) -> Line:
    """Return the equation for the growth factors, `zeta^2 - (1 - k + z) zeta - k = 0`."""
    in_zeta = sympy.Poly(polynomial.as_expr(), zeta)
    return Line(tuple((c, zeta**power) for (power,), c in in_zeta.terms()), ((sympy.Integer(0), sympy.Integer(1)),))


def modified_line(equation: sympy.Eq, parameters: set[sympy.Symbol]) -> Line:
    """Return a modified equation as a line, `(1 + k) u' + (1 - k) dt/2 u'' = f`; `k` is one of the parameters."""
    derivatives = sorted(equation.lhs.atoms(sympy.Derivative), key=lambda d: d.derivative_count)
    left = [(equation.lhs.expand().coeff(d), _prime(d)) for d in derivatives]
    differentials = sorted(equation.rhs.free_symbols - {dt} - parameters, key=str)
    terms = [(sympy.factor(sympy.diff(equation.rhs, symbol)), symbol) for symbol in differentials]
    right = sorted(terms, key=lambda term: sympy.degree(sympy.fraction(term[0])[0], dt))  # each has one power of dt
    return Line(tuple(left), tuple(right))


def _prime(derivative: sympy.Derivative) -> sympy.Symbol:
    n = derivative.derivative_count
    primes = "'" * n if n < 4 else f"^{{({n})}}"
    return sympy.Symbol(f"{derivative.expr.func}{primes}")


def _state(name: str, shift: int) -> sympy.Symbol:
    return sympy.Symbol(f"{name}_{{n{shift:+d}}}" if shift else f"{name}_n")


def _in_symbols(total: Terms, symbols: dict[Quantity, sympy.Symbol]) -> LineTerms:
    weights: dict[sympy.Symbol, sympy.Expr] = {}
    for quantity, weight in total:
        symbol = symbols[quantity]
        weights[symbol] = weights.get(symbol, 0) + sympy.nsimplify(weight, rational=True)
    return tuple((c, symbol) for symbol, c in weights.items() if c != 0)


def _one(symbol: sympy.Symbol) -> LineTerms:
    return ((sympy.Integer(1), symbol),)


def _sum(terms: LineTerms, show: Callable[[sympy.Expr], str]) -> str:
    """Format `c s + c s - c s`: a factor 1 is omitted, a sign becomes the operator, a sum is put in parentheses."""
    text = ""
    for c, symbol in terms:
        scalar, bracket = _split(sympy.sympify(c))
        negative = scalar.could_extract_minus_sign()
        scalar = -scalar if negative else scalar
        factors = [f"({show(bracket)})" if bracket.is_Add else show(bracket)] if bracket != 1 else []
        factors += [show(scalar)] if scalar != 1 else []
        factors += [show(symbol)] if symbol != 1 else []
        term = " ".join(factors) or "1"
        text += f" {'-' if negative else '+'} {term}" if text else f"{'-' if negative else ''}{term}"
    return text


def _split(c: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """Split `c = scalar * bracket`, the bracket a sum in k or z with a positive constant term, or 1."""
    numerator, denominator = sympy.fraction(sympy.together(c))
    parameters = c.free_symbols - {dt, z, zeta}
    if denominator.free_symbols & parameters:
        scalar, bracket = _split(numerator)
        return scalar / sympy.factor(denominator), bracket
    bracket = sympy.expand(c)
    if not bracket.is_Add:
        return bracket, sympy.Integer(1)
    scalar = sympy.Integer(1)
    if not bracket.has(z):  # (1 - k) dt/2, but 1 + z + z^2/2
        scalar, bracket = sympy.factor_terms(bracket, sign=False).as_independent(*parameters, as_Add=False)
    if bracket.subs(dict.fromkeys((*parameters, z), 0)).could_extract_minus_sign():
        scalar, bracket = -scalar, sympy.expand(-bracket)
    return scalar, bracket


def _latex(expression: sympy.Expr) -> str:
    return str(sympy.latex(expression, symbol_names={dt: r"\Delta t"}, order="rev-lex"))
