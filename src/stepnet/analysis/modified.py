"""The modified equation: the equation that a scheme solves more accurately than the one it is consistent with.

In *derivatives* (the paper's form, for every linear multistep method): the step says `rho(E) u = dt^m sigma(E) f` with
the shift `E = exp(dt D)`, so

    dt^-m rho(e^(dt D)) / sigma(e^(dt D)) u = f.

In *elementary differentials* (backward error): the field `f + dt f_1 + dt^2 f_2 + …` whose exact flow the step follows,
computed grade by grade from the rooted trees.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Literal, TypeAlias

import sympy

from stepnet.analysis.power_series import divide, of_shifts
from stepnet.analysis.symbols import dt, exact, vanishes, z, zeta
from stepnet.analysis.trees import Combination, Series, System, Vector, grade
from stepnet.errors import UserError
from stepnet.schemes import Coefficient, Equation, Point, Scheme, advance, from_parts, full_step, parts_of

Form: TypeAlias = Literal["derivatives", "differentials"]
t = sympy.Symbol("t")
u = sympy.Function("u")
f = sympy.Symbol("f")

_DEEPEST = 9  # the highest order of a scheme whose correction is computed


def modified(
    method: Scheme, polynomial: sympy.Poly, terms: int = 2, form: Form | None = None
) -> sympy.Eq | tuple[sympy.Eq, ...]:
    """The modified equation with its first `terms` non-zero terms; a pair of equations for a partitioned scheme."""
    multistep = len(method.functions) == 1 and polynomial.degree(z) == 1
    form = form or ("derivatives" if multistep else "differentials")
    if form == "derivatives":
        if not multistep:
            raise UserError(f"{method.name} is not a linear multistep method: take form='differentials'")
        return _in_derivatives(polynomial, method.equation.derivative, terms)
    if method.equation.derivative > 1:
        raise UserError(f"{method.name} solves {method.equation}: take form='derivatives'")
    if vanishes(exact(method.equation.mass)):
        raise UserError(f"{method} is consistent with {method.equation}, and follows no flow")
    return _in_differentials(method, terms)


def evaluates_between_states(method: Scheme) -> bool:
    """Whether the step evaluates f elsewhere than at a state, as `f((u_n + u_{n-1})/2)` or a Runge–Kutta stage does."""
    if method.equation.partitioned:
        return False
    arguments = [evaluation.argument for evaluation in full_step(method).evaluations]
    return any([weight for _, weight in terms] != [1] or terms[0][0].name == "f" for terms in arguments)


def differential_name(vector: Vector) -> str:
    """Format an elementary differential: f, f'f, f''(f, f), f'f'f, f''(f, f'f)."""
    label, *children = vector
    names = [differential_name(child) for child in children]
    primes, inside = "'" * len(names), ", ".join(names)
    return f"{label}{primes}({inside})" if len(names) > 1 else f"{label}{primes}{inside}"


def derivative_series(polynomial: sympy.Poly, terms: int) -> list[tuple[int, sympy.Expr]]:
    """The first non-zero `(n, c_n)` of `rho / sigma = sum_n c_n (dt D)^n`, for a polynomial `rho - z sigma`."""
    in_z = sympy.Poly(polynomial.as_expr(), z)
    minus_sigma, rho = in_z.all_coeffs()
    rho, sigma = sympy.fraction(sympy.cancel(-rho / minus_sigma))  # streams that do not affect u are a common factor
    length = 2 * terms + _DEEPEST  # a symmetric method lacks every second term
    above, below = (
        of_shifts({power: c for (power,), c in sympy.Poly(part, zeta).as_dict().items()}, length)
        for part in (rho, sigma)
    )
    if below[0] == 0:
        raise UserError("sigma(1) = 0: the scheme is consistent with no differential equation")
    found = [(n, sympy.factor(c)) for n, c in enumerate(divide(above, below)) if c != 0][:terms]
    if found[0][0] == 0:
        raise UserError("rho(1) is not 0: the scheme is consistent with no differential equation")
    return found


def _in_derivatives(polynomial: sympy.Poly, m: int, terms: int) -> sympy.Eq:
    found = derivative_series(polynomial, terms)
    return sympy.Eq(sympy.Add(*(c * dt ** (n - m) * u(t).diff(t, n) for n, c in found)), f)


def _in_differentials(method: Scheme, terms: int) -> sympy.Eq | tuple[sympy.Eq, ...]:
    """`mass u' = mass V`, so that the first term is f itself."""
    for limit in range(terms, terms + _DEEPEST):
        found = _backward_error(method, limit)
        grades = sorted({grade(v, 1) for part in found for v in part})
        if len(grades) >= terms:
            break
    mass, equations = sympy.sympify(method.equation.mass), []
    for name, part in zip(("X", "Y") if len(found) == 2 else ("u",), found, strict=True):
        field = sympy.Integer(0)
        for q in grades[:terms]:
            group = [_short(mass * c) * sympy.Symbol(differential_name(v)) for v, c in part.items() if grade(v, 1) == q]
            field += dt ** (q - 1) * sympy.Add(*group)
        equations.append(sympy.Eq(mass * sympy.Function(name)(t).diff(t), field))
    return from_parts(equations)


def _short(c: Coefficient) -> sympy.Expr:
    return sympy.factor(sympy.cancel(c)) if getattr(c, "free_symbols", ()) else sympy.sympify(c)


def _backward_error(method: Scheme, limit: int) -> list[Combination]:
    """Return the field V, one part for each part of the state, whose flow the step follows up to a grade:

        exp(D_V) u = step(u, exp(-D_V) u, …).

    The grade q of V occurs once on the left, and in the carry with the weights of the past, `-j c_j`: together
    `1 + sum_j j c_j` times, which is 1 for a one-step method and `1 + k` for `lm`. For a multistep method V is its
    principal flow, which it follows from smooth starting values.
    """
    equation = replace(method.equation, mass=1)
    system = Autonomous(equation, limit)
    count = 2 if equation.partitioned else 1
    weight = 1 - _carried(method, count)
    field: list[Combination] = [{} for _ in range(count)]
    for q in range(1, limit + 1):
        past = []
        for j in range(method.steps):
            states = [Series(_flow(field, part, q, equation, -j), 1) for part in range(count)]
            past.append(Point(from_parts(states), system.rhs(0)))
        parts = parts_of(advance(method, tuple(past), 1, method.k))
        flow = [_flow(field, part, q, equation, 1) for part in range(count)]  # up to the grades known so far
        for part, stepped, reached in zip(field, parts, flow, strict=True):
            for vector in {**stepped.terms, **reached}:
                rest = stepped.terms.get(vector, 0) - reached.get(vector, 0)
                if grade(vector, 1) == q and not vanishes(rest):
                    part[vector] = rest / exact(weight)
    return field


def _carried(method: Scheme, count: int) -> Coefficient:
    """Return `-sum_j j c_j`: the carry of the numbers `-j`."""
    past = tuple(Point(from_parts([-Fraction(j)] * count)) for j in range(method.steps))
    return parts_of(method.carry(past, 1, method.k))[0]


class Autonomous(System):
    """A system whose f does not depend on time."""

    def evaluate(self, label: str, u: Series, time: Coefficient) -> Series:
        return super().evaluate(label, u, 0)


def _flow(field: list[Combination], part: int, limit: int, equation: Equation, time: int) -> Combination:
    """`exp(s D_V) u - u = s V + s^2 D_V V / 2! + s^3 D_V^2 V / 3! + …` at time s, one part of it, up to a grade."""
    if not time:
        return {}
    power, n = {v: time * c for v, c in field[part].items()}, 1
    total: Combination = dict(power)
    while power:
        n += 1
        grown = _lie_derivative(power, field, limit, equation)
        power = {v: Fraction(time, n) * c for v, c in grown.items()}
        for vector, c in power.items():
            total[vector] = total.get(vector, 0) + c
    return total


def _lie_derivative(terms: Combination, field: list[Combination], limit: int, equation: Equation) -> Combination:
    """Apply `D_V` to a combination of elementary differentials: graft V on every vertex in turn."""
    result: Combination = {}
    for vector, c in terms.items():
        for branch, weight in ((v, w) for part in field for v, w in part.items()):
            if grade(vector, 1) + grade(branch, 1) <= limit:
                for grafted in _grafts(vector, branch, equation):
                    result[grafted] = result.get(grafted, 0) + c * weight
    return result


def _grafts(vector: Vector, branch: Vector, equation: Equation) -> list[Vector]:
    label, *children = vector
    found: list[Vector] = []
    # f depends only on Y, whose directions have the root g, and vice versa; a linear f has no second derivative
    if not (equation.partitioned and branch[0] == label) and not (equation.linear and children):
        found.append(_vector(label, [*children, branch]))
    for i, child in enumerate(children):
        rest = children[:i] + children[i + 1 :]
        found += [_vector(label, [*rest, grown]) for grown in _grafts(child, branch, equation)]
    return found


def _vector(label: str, children: list[Vector]) -> Vector:
    return (label, *sorted(children, key=str))
