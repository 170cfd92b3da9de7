"""The condition for weak convergence of a noisy step to its stochastic equation, in symbols (appendix B).

The step `X_{n+1} = X_n + E(eta) f dt + s f dW_n` converges weakly to `dX = E(eta) f dt + s f dB` where

    |E dW| + |E dW^3| + |E dW^2 - dt| <= K dt^2.

Also its purpose: the error of one step in the moments of X.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from stepnet.analysis.notation import plain
from stepnet.analysis.sde import X, Y, right_hand_sides, stochastic_equation, stochastic_step, with_constant, xi
from stepnet.analysis.symbols import dt, exact
from stepnet.arguments import Count, checked
from stepnet.schemes.noises import Noise, Parameter, get_noise, t

REQUIRED = 2  # the power of dt that the condition requires of each term


@dataclass(frozen=True)
class Term:
    """`coefficient dt^order`, or 0, whose order is infinite."""

    name: str
    value: sympy.Expr
    order: sympy.Expr
    coefficient: sympy.Expr


@dataclass(frozen=True)
class Smallness:
    """The assumption `expression = O(dt^power)`."""

    expression: sympy.Expr
    power: sympy.Expr

    def __str__(self) -> str:
        return f"{plain(self.expression)} = O({plain(dt**self.power)})"


@dataclass(frozen=True)
class WeakCondition:
    """Whether `|E dW| + |E dW^3| + |E dW^2 - dt| <= K dt^2`; if not, the assumptions under which it holds."""

    terms: tuple[Term, ...]
    assumptions: tuple[Smallness, ...]

    @property
    def holds(self) -> bool:
        """Whether it holds without an assumption."""
        return all(term.order >= REQUIRED for term in self.terms)

    def __str__(self) -> str:
        if self.holds:
            return "holds"
        reason = ", ".join(f"{term.name} is of order {term.order}" for term in self.terms if term.order < REQUIRED)
        return f"fails: {reason}" + (
            f"; holds if {' and '.join(map(str, self.assumptions))}" if self.assumptions else ""
        )


def increment_moment(noise: Noise, m: int) -> sympy.Expr:
    """`E dW^m = dt^(m/2) E xi^m`."""
    return dt ** sympy.Rational(m, 2) * noise.moment(m)


@checked
def weak_condition(noise: str | Noise, **parameters: Parameter) -> WeakCondition:
    """Check the condition of appendix B symbolically. An assumption is listed if it makes its term small enough."""
    noise = get_noise(noise, **parameters)
    moments = {m: increment_moment(noise, m) for m in (1, 2, 3)}
    terms = (
        _term("E dW", moments[1]),
        _term("E dW^2 - dt", moments[2] - dt),
        _term("E dW^3", moments[3]),
    )
    failing = [term for term in terms if term.order < REQUIRED and term.coefficient.free_symbols]
    return WeakCondition(terms, tuple(small for term in failing if (small := _assumption(term)) is not None))


@checked
def one_step_error(
    noise: str | Noise, moment: Count = 1, damping: float | sympy.Expr | None = None, **parameters: Parameter
) -> Term:
    """The leading term of `E X_1^m - E X(dt)^m` from X = 1, with `f = a X`, or `f1 = a X` and `f2 = b X`.

    An error of order dt^q in each of T/dt steps adds up to one of order dt^(q - 1): that is the weak order of the m-th
    moment, for all rates. With a damping (section 3.2) the moments of degree m in X and Y are coupled, and the
    largest error among them counts.
    """
    noise = get_noise(noise, **parameters)
    a, b = sympy.symbols("a b")
    fs = with_constant(noise, (lambda x: a * x, lambda x: b * x))
    rates = dict(zip(right_hand_sides(noise), (a, b), strict=False))
    state, drift, diffusion = stochastic_equation(noise, damping).linear(rates)
    new = stochastic_step(noise, fs, state, xi, dt, None if damping is None else sympy.nsimplify(exact(damping)))

    def generator(phi: sympy.Expr) -> sympy.Expr:
        """`d/dt E phi(Z) = E (generator phi)(Z)`, by Itô's formula."""
        second = sum(
            g * h * sympy.diff(phi, y, z)
            for y, g in zip(state, diffusion, strict=True)
            for z, h in zip(state, diffusion, strict=True)
        )
        return sympy.expand(sum(d * sympy.diff(phi, z) for z, d in zip(state, drift, strict=True)) + second / 2)

    def error(phi: sympy.Expr) -> Term | None:
        power = sympy.expand(phi.subs(dict(zip(state, new, strict=True)), simultaneous=True))
        of_step = sum(power.coeff(xi, j) * noise.moment(j) for j in range(moment + 1))
        slope = generator(phi)
        of_equation = phi + dt * slope + dt**2 / 2 * (generator(slope) + sympy.diff(slope, t))  # Euler's error is dt^2
        root = sympy.Symbol("root", positive=True)  # of dt
        left = sympy.Poly(sympy.expand((of_step - of_equation).subs(dt, root**2).subs(X, 1)), root)
        for (n,), c in reversed(left.terms()):
            coefficient = _factored(sympy.simplify(c))
            if coefficient != 0:
                order = sympy.Rational(n, 2)
                return Term(f"E {plain(phi)}", coefficient * dt**order, order, coefficient)
        return None

    monomials = [X ** (moment - j) * Y**j for j in range(moment + 1 if damping is not None else 1)]
    return min(filter(None, map(error, monomials)), key=lambda term: term.order)


def _term(name: str, value: sympy.Expr) -> Term:
    value = sympy.simplify(value)
    if value == 0:
        return Term(name, value, sympy.oo, sympy.S.Zero)
    coefficient, order = value.as_leading_term(dt).as_coeff_exponent(dt)
    return Term(name, value, order, _factored(coefficient))


def _factored(coefficient: sympy.Expr) -> sympy.Expr:
    """Factor into terms such as `1 - 2 p`, whose constant is positive."""
    factors = sympy.Mul.make_args(sympy.factor(coefficient))
    turned = [factor for factor in factors if factor.is_Add and factor.as_coeff_Add()[0].is_negative]
    return (-1) ** len(turned) * sympy.Mul(*(-factor if factor in turned else factor for factor in factors))


def _assumption(term: Term) -> Smallness | None:
    """Assume that the coefficient's numerator is small, if that suffices; checked by solving for the parameter."""
    numerator, _ = sympy.fraction(sympy.together(term.coefficient))
    power = REQUIRED - term.order
    (symbol,) = numerator.free_symbols
    if numerator.subs(symbol, 0).is_negative:
        numerator = sympy.expand(-numerator)
    bound = sympy.Symbol("c", positive=True) * dt**power
    try:
        roots = sympy.solve(numerator - bound, symbol)
    except NotImplementedError:  # a survival with corners in time, such as max(1/5, 1 - t)
        return None
    for root in roots:
        if _term(term.name, term.value.subs(symbol, root)).order >= REQUIRED:
            return Smallness(numerator, power)
    return None
