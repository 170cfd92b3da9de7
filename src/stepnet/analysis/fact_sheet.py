"""An analysis in words: as text of 80 columns, as HTML with typeset equations, as LaTeX, and as plain values."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import sympy

from stepnet.analysis.notation import Line, plain, plain_equation
from stepnet.analysis.symbols import dt, z, zeta
from stepnet.errors import UserError
from stepnet.schemes import Coefficient, Equation, Scheme, aliases_of

if TYPE_CHECKING:
    from stepnet.analysis.scheme_analysis import SchemeAnalysis

WIDTH = 80
_NO_BREAK = "\u00a0"
Said = Line | str  # an equation, or words


@dataclass(frozen=True)
class FactSheet:
    """A heading, what it is, and the facts: a label with one line or more to each."""

    heading: str
    about: list[str]
    facts: list[tuple[str, list[Said]]]

    def __str__(self) -> str:
        lines = [self.heading, *(f"  {text}" for text in self.about), ""]
        for label, said in self.facts:
            for i, text in enumerate(said):
                lines += _wrapped(label if i == 0 else "", str(text))
        return "\n".join(lines)

    @property
    def html(self) -> str:
        """A table, its equations for MathJax."""

        def cell(said: Said) -> str:
            return rf"$\displaystyle {html.escape(said.latex)}$" if isinstance(said, Line) else html.escape(said)

        rows = "".join(
            f"<tr><th style='text-align:left;vertical-align:top'>{html.escape(label)}</th>"
            f"<td style='text-align:left'>{'<br>'.join(map(cell, said))}</td></tr>"
            for label, said in self.facts
        )
        about = "".join(f"<br>{html.escape(text)}" for text in self.about)
        return f"<p><b>{html.escape(self.heading)}</b>{about}</p><table>{rows}</table>"


def describe_scheme(found: SchemeAnalysis) -> FactSheet:
    """What `stepnet scheme` prints."""
    scheme, equation = found.scheme, found.equation
    places = sum(line.function != "" for line in found.step_lines)  # where f is evaluated, in lines of their own
    repeated = f", at {places} places" if 0 < places < scheme.stages else ""
    of_g = ", with those of g" if equation.split else ""
    past = f"{scheme.steps} past state{'' if scheme.steps == 1 else 's'}"
    facts: list[tuple[str, list[Said]]] = [
        ("step", [*found.step_lines]),
        ("equation", [*([found.equation_line] if equation.mass != 0 else []), *_rescaling(equation)]),
        ("order", [*_orders(found)]),
        ("evaluations of f", [f"{scheme.stages} in a step{repeated}{of_g}; it reads {past}"]),
        ("growth factors", [found.amplification_line, *(["where f = g = lambda u / 2"] if equation.split else [])]),
        ("zero-stable", [zero_stable_text(found)]),
        ("negative axis", _or_why_not(lambda: _axis(found, "-x", found.stability_interval))),
        ("imaginary axis", _or_why_not(lambda: _axis(found, "i x", found.imaginary_limit))),
        ("modified equation", _or_why_not(lambda: _modified(found))),
    ]
    about = [f"network: {scheme.network}"] if scheme.network else []
    about += [f"reference: {scheme.reference}"] if scheme.reference else []
    aliases = aliases_of(scheme.name)
    about += [f"aliases: {', '.join(aliases)}"] if aliases else []
    return FactSheet(", ".join([scheme.name, *_numbers(scheme)]), about, facts)


def scheme_align(found: SchemeAnalysis) -> str:
    """The step, the growth factors and the modified equation, aligned at their equals signs."""
    modified = [line for line in _or_why_not(lambda: [*found.modified_lines()]) if isinstance(line, Line)]
    lines = [line.latex.replace(" = ", " &= ", 1) for line in (*found.step_lines, found.amplification_line, *modified)]
    body = " \\\\\n".join(f"  {line}" for line in lines)
    return f"\\begin{{align*}}\n{body}\n\\end{{align*}}"


def scheme_values(found: SchemeAnalysis) -> dict[str, object]:
    """The facts as strings, numbers and lists; None where there is none."""

    def expression(find: Callable[[], object]) -> str | None:
        try:
            return str(find())
        except UserError:
            return None

    scheme, modified = found.scheme, _or_why_not(lambda: [*found.modified_lines()])
    return {
        "scheme": scheme.name,
        "k": None if scheme.k is None else _plainly(scheme.k),
        "network": scheme.network,
        "reference": scheme.reference,
        "aliases": aliases_of(scheme.name),
        "step": [str(line) for line in found.step_lines],
        "equation": found.equation_line,
        "order": found.order,
        "stages": scheme.stages,
        "past_states": scheme.steps,
        "amplification": str(found.amplification.as_expr()),
        "zero_stable": found.zero_stable if isinstance(found.zero_stable, bool) else str(found.zero_stable),
        "stability_interval": expression(lambda: found.stability_interval),
        "imaginary_limit": expression(lambda: found.imaginary_limit),
        "modified_equation": [str(line) for line in modified if isinstance(line, Line)],
        "latex": found.latex,
    }


def _or_why_not(find: Callable[[], list[Said]]) -> list[Said]:
    """What was found, or why it was not: a scheme of a user's own may have no such equation or formula."""
    try:
        return find()
    except UserError as error:
        return [f"unknown ({error})"]


def _orders(found: SchemeAnalysis) -> list[str]:
    """Against its own equation; for nonlinear f, and against `u' = f`, where those are others."""
    equation, orders = found.equation, [str(found.order)]
    if equation.linear:
        nonlinear = replace(equation, linear=False)
        orders.append(f"{found.order_against(nonlinear)} against {plain_equation(nonlinear)} for nonlinear f")
    if equation.mass not in (0, 1) and not equation.partitioned:
        orders.append(f"{found.order_against(Equation())} against u' = f")
    return orders


def _rescaling(equation: Equation) -> list[str]:
    """What the mass means for someone who wanted `u' = f`."""
    if equation.mass == 1:
        return []
    if equation.mass == 0:
        return ["consistent with no equation of first order"]
    return [f"which is u' = f with the step {plain(dt / sympy.sympify(equation.mass))}"]


def _numbers(scheme: Scheme) -> list[str]:
    """The coefficients that are numbers, where they are not those of Euler's step."""
    if not isinstance(scheme.k, dict):
        number = scheme.k is not None and not getattr(scheme.k, "free_symbols", ())
        return [f"k = {scheme.k}"] if number else []
    numbers = {name: scheme.k[name] for name in scheme.arguments if not getattr(scheme.k[name], "free_symbols", ())}
    return [f"{name} = {_plainly(value)}" for name, value in numbers.items()]


def _plainly(value: Coefficient) -> str:
    """A number, rows of them (`[1/2, 1/2]`), or several by name."""
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_plainly(inner)}" for name, inner in value.items())
    return f"[{', '.join(map(_plainly, value))}]" if isinstance(value, tuple) else str(value)


def zero_stable_text(found: SchemeAnalysis) -> str:
    """yes, no, or the coefficients for which it is."""
    stable = found.zero_stable
    if isinstance(stable, bool):
        return "yes" if stable else "no"
    (name,) = map(str, found.amplification.as_expr().subs(z, 0).free_symbols - {zeta})
    if stable is sympy.S.EmptySet:
        return f"for no {name}"
    pieces = stable.args if isinstance(stable, sympy.Union) else (stable,)
    return "for " + " or ".join(_range(piece, name) for piece in pieces)


def _range(piece: sympy.Set, name: str) -> str:
    if isinstance(piece, sympy.FiniteSet):
        return " or ".join(f"{name} = {value}" for value in piece)
    low = "" if piece.start == -sympy.oo else f"{piece.start} {'<' if piece.left_open else '<='} "
    high = "" if piece.end == sympy.oo else f" {'<' if piece.right_open else '<='} {piece.end}"
    return f"{low}{name}{high}"


def _axis(found: SchemeAnalysis, point: str, limit: sympy.Expr) -> list[Said]:
    """How far along an axis the scheme is stable; a line of its own for a k that is unlike the others."""
    *special, (general, _) = limit.args if isinstance(limit, sympy.Piecewise) else [(limit, sympy.true)]
    lines: list[Said] = [_interval(found, point, general)]
    for value, condition in special:
        there = type(found)(found.scheme.name, **{str(condition.lhs): condition.rhs})
        lines.append(f"at {condition.lhs} = {condition.rhs}: {_interval(there, point, value)}")
    return lines


def _interval(found: SchemeAnalysis, point: str, limit: sympy.Expr) -> str:
    """`z = dt lambda`, and the x for which it is stable, with `<` at an end that is not stable itself."""
    m = found.equation.derivative
    product = "dt lambda" if m == 1 else f"dt^{m} lambda"
    low = "<=" if found.stable(0) else "<"
    if limit == 0:
        return "stable nowhere but at 0" if low == "<=" else "stable nowhere"
    if limit is sympy.oo:
        return f"stable for every {product} = {point}, 0 {low} x"
    high = "<=" if found.stable((-1 if point == "-x" else sympy.I) * limit) else "<"
    return f"stable for {product} = {point}, 0 {low} x {high} {_number(limit)}"


def _number(limit: sympy.Expr) -> str:
    """Exactly where that is short, and in digits where it is not rational."""
    if limit.free_symbols or limit.is_Rational:
        return plain(limit)
    digits = str(sympy.N(limit, 7))
    return digits if limit.has(sympy.CRootOf, sympy.Float) else f"{plain(limit)} = {digits}"


def _modified(found: SchemeAnalysis) -> list[Said]:
    lines: list[Said] = [*found.modified_lines()]
    in_derivatives = found.amplification.degree(z) == 1 and not found.equation.partitioned
    return [*lines, "for linear f"] if in_derivatives and found.scheme.steps > 1 and found.between_states else lines


def _wrapped(label: str, text: str) -> list[str]:
    """At most 80 columns; an equation breaks only before a sign."""
    if " = " in text:
        text = re.sub(r"(?<![-+=]) (?![-+=])", _NO_BREAK, text)
        text = re.sub(r"(?<=[-+=]) ", _NO_BREAK, text)
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=f"  {label:<19}", subsequent_indent=" " * 23, break_long_words=False
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]
