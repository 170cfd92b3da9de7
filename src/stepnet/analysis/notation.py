"""A scheme's step as a person writes it, derived by running the scheme on symbols.

Each evaluation of f is recorded and stands as a symbol in what follows. Where f is evaluated at known states only, it
is written out, `dt f(u_n)`; otherwise the evaluations are named `f_1, f_2, …` and listed before the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import sympy

from stepnet.analysis.growth_factors import NEW
from stepnet.analysis.symbols import dt, k, z, zeta
from stepnet.errors import UserError
from stepnet.schemes import Equation, Point, Scheme, advance
from stepnet.schemes.arithmetic import Coefficient

Terms = tuple[tuple[sympy.Expr, sympy.Expr], ...]  # (coefficient, symbol), in reading order


@dataclass(frozen=True)
class Line:
    """`left = right`, or `left = f(right)`: each side a linear combination of symbols."""

    left: Terms
    right: Terms
    function: str = ""

    def __str__(self) -> str:
        left, right = _sum(self.left, plain), _sum(self.right, plain)
        return f"{left} = {self.function}({right})" if self.function else f"{left} = {right}"

    @property
    def latex(self) -> str:
        """The same line for a paper."""
        left, right = _sum(self.left, _latex), _sum(self.right, _latex)
        return rf"{left} = {self.function}\left({right}\right)" if self.function else f"{left} = {right}"


def plain(expression: sympy.Expr) -> str:
    """An expression in plain characters: `dt/2`, `1 - k`, `3 dt^2/4`."""
    text = str(sympy.sstr(expression, order="rev-lex")).replace("**", "^").replace("*", " ")
    return text.replace("^{(", "^(").replace(")}", ")")  # a fourth derivative is u^{(4)} in LaTeX only


def plain_equation(equation: Equation) -> str:
    """The equation that a scheme solves, `(1 + k) u' = f`."""
    mass = sympy.sympify(equation.mass)
    return str(equation if mass == 1 else replace(equation, mass=plain(mass)))


def step_lines(method: Scheme) -> list[Line]:
    """The lines of one step; the last (for a pair, the last two) give the new state."""
    pair = method.equation.partitioned
    names = ("X", "Y") if pair else ("u",)
    past = [[_state(name, -j) for name in names] for j in range(method.steps)]
    recorder = _Recorder()
    points = []
    for states in past:
        rhs = (recorder.function("f"), recorder.function("g")) if pair else recorder.function("f")
        points.append(Point(tuple(states) if pair else states[0], rhs))
    new = advance(method, tuple(points), dt, method.k)
    results = {_state(name, 1): value for name, value in zip(names, new if pair else (new,), strict=True)}
    known = [state for states in past for state in states]
    recorder.settle(known, results)
    lines = [Line(_one(name), _terms(argument, known, recorder), label) for name, label, argument in recorder.stages]
    return lines + [Line(_one(left), _terms(right, known, recorder)) for left, right in results.items()]


def amplification_line(polynomial: sympy.Poly) -> Line:
    """The equation for the growth factors, `zeta^2 - (1 - k + z) zeta - k = 0`."""
    in_zeta = sympy.Poly(polynomial.as_expr(), zeta)
    return Line(tuple((c, zeta**power) for (power,), c in in_zeta.terms()), ((sympy.Integer(0), sympy.Integer(1)),))


def modified_line(equation: sympy.Eq) -> Line:
    """A modified equation in the same notation, `(1 + k) u' + (1 - k) dt/2 u'' = f`."""
    derivatives = sorted(equation.lhs.atoms(sympy.Derivative), key=lambda d: d.derivative_count)
    left = [(equation.lhs.expand().coeff(d), _prime(d)) for d in derivatives]
    differentials = sorted(equation.rhs.free_symbols - {dt, k}, key=str)
    terms = [(sympy.factor(sympy.diff(equation.rhs, symbol)), symbol) for symbol in differentials]
    right = sorted(terms, key=lambda term: sympy.degree(sympy.fraction(term[0])[0], dt))  # each has one power of dt
    return Line(tuple(left), tuple(right))


def _prime(derivative: sympy.Derivative) -> sympy.Symbol:
    n = derivative.derivative_count
    primes = "'" * n if n < 4 else f"^{{({n})}}"
    return sympy.Symbol(f"{derivative.expr.func}{primes}")


class _Recorder:
    """Hands out a symbol for each evaluation, and remembers where it was taken."""

    def __init__(self) -> None:
        self.calls: list[tuple[sympy.Symbol, str, sympy.Expr]] = []
        self.written: dict[sympy.Symbol, sympy.Expr] = {}
        self.stages: list[tuple[sympy.Symbol, str, sympy.Expr]] = []

    def function(self, label: str) -> Callable[[sympy.Expr, Coefficient, int], sympy.Symbol]:
        """The right-hand side of that name."""

        def rhs(u: sympy.Expr, c: Coefficient, i: int) -> sympy.Symbol:
            for symbol, same, argument in self.calls:
                if same == label and argument == u:
                    return symbol
            symbol = sympy.Symbol(f"{label}_{len(self.calls) + 1}")
            self.calls.append((symbol, label, u))
            return symbol

        return rhs

    def settle(self, known: list[sympy.Symbol], results: dict[sympy.Symbol, sympy.Expr]) -> None:
        """Write out what is evaluated at a state, old or new; name the rest."""
        states = {**{sympy.expand(value): name for name, value in results.items()}, **{s: s for s in (*known, NEW)}}
        at = {symbol: states.get(sympy.expand(argument)) for symbol, _, argument in self.calls}
        if all(state is not None for state in at.values()):
            self.written = {symbol: sympy.Function(label)(at[symbol]) for symbol, label, _ in self.calls}
        else:
            self.stages = self.calls


def _state(name: str, shift: int) -> sympy.Symbol:
    return sympy.Symbol(f"{name}_{{n{shift:+d}}}" if shift else f"{name}_n")


def _terms(expression: sympy.Expr, known: list[sympy.Symbol], recorder: _Recorder) -> Terms:
    symbols = [*known, *(symbol for symbol, _, _ in recorder.calls)]
    expanded = sympy.nsimplify(sympy.expand(expression), rational=True)
    found = [(expanded.coeff(symbol), symbol) for symbol in symbols]
    rest = sympy.expand(expanded - sum(c * symbol for c, symbol in found))
    if rest != 0:
        raise UserError(f"the step is not a combination of states and evaluations of f: it has {rest}")
    return tuple((c, recorder.written.get(symbol, symbol)) for c, symbol in found if c != 0)


def _one(symbol: sympy.Symbol) -> Terms:
    return ((sympy.Integer(1), symbol),)


def _sum(terms: Terms, show: Callable[[sympy.Expr], str]) -> str:
    """`c s + c s - c s`: a factor 1 is left out, a sign becomes the operator, a sum is put in parentheses."""
    text = ""
    for c, symbol in terms:
        scalar, bracket = _split(sympy.sympify(c))
        negative = scalar.could_extract_minus_sign()
        scalar = -scalar if negative else scalar
        factors = [f"({show(bracket)})"] if bracket.is_Add else []
        factors += [show(scalar)] if scalar != 1 else []
        factors += [show(symbol)] if symbol != 1 else []
        term = " ".join(factors) or "1"
        text += f" {'-' if negative else '+'} {term}" if text else f"{'-' if negative else ''}{term}"
    return text


def _split(c: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """`c = scalar * bracket`, the bracket a sum in k or z whose constant is positive, or 1."""
    numerator, denominator = sympy.fraction(sympy.together(c))
    if denominator.has(k):
        scalar, bracket = _split(numerator)
        return scalar / sympy.factor(denominator), bracket
    bracket = sympy.expand(c)
    if not bracket.is_Add:
        return bracket, sympy.Integer(1)
    scalar = sympy.Integer(1)
    if not bracket.has(z):  # (1 - k) dt/2, but 1 + z + z^2/2
        scalar, bracket = sympy.factor_terms(bracket, sign=False).as_independent(k, as_Add=False)
    if bracket.subs({k: 0, z: 0}).could_extract_minus_sign():
        scalar, bracket = -scalar, sympy.expand(-bracket)
    return scalar, bracket


def _latex(expression: sympy.Expr) -> str:
    return str(sympy.latex(expression, symbol_names={dt: r"\Delta t"}, order="rev-lex"))
