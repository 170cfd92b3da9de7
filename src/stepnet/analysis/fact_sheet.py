"""The analysis of a scheme as text of 80 columns, as HTML with typeset equations, as LaTeX, and as plain values."""

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
Entry = Line | str  # an equation or a sentence


@dataclass(frozen=True)
class FactSheet:
    """A heading, lines about the scheme, and its facts, each a label with one or more entries."""

    heading: str
    about: list[str]
    facts: list[tuple[str, list[Entry]]]

    def __str__(self) -> str:
        lines = [self.heading, *(f"  {text}" for text in self.about), ""]
        for label, entries in self.facts:
            for i, text in enumerate(entries):
                lines += _wrapped(label if i == 0 else "", str(text))
        return "\n".join(lines)

    @property
    def html(self) -> str:
        """The facts as an HTML table, with equations for MathJax."""

        def cell(entry: Entry) -> str:
            return rf"$\displaystyle {html.escape(entry.latex)}$" if isinstance(entry, Line) else html.escape(entry)

        rows = "".join(
            f"<tr><th style='text-align:left;vertical-align:top'>{html.escape(label)}</th>"
            f"<td style='text-align:left'>{'<br>'.join(map(cell, entries))}</td></tr>"
            for label, entries in self.facts
        )
        about = "".join(f"<br>{html.escape(text)}" for text in self.about)
        return f"<p><b>{html.escape(self.heading)}</b>{about}</p><table>{rows}</table>"


def describe_scheme(analysis: SchemeAnalysis) -> FactSheet:
    """Return the fact sheet that `stepnet scheme` prints."""
    scheme, equation = analysis.scheme, analysis.equation
    places = sum(line.function != "" for line in analysis.step_lines)  # where f is evaluated, if on separate lines
    repeated = f", at {places} places" if 0 < places < scheme.stages else ""
    of_g = ", with those of g" if equation.split else ""
    past = f"{scheme.steps} past state{'' if scheme.steps == 1 else 's'}"
    facts: list[tuple[str, list[Entry]]] = [
        ("step", [*analysis.step_lines]),
        ("equation", [*([analysis.equation_line] if equation.mass != 0 else []), *_rescaling(equation)]),
        ("order", [*_orders(analysis)]),
        ("evaluations of f", [f"{scheme.stages} in a step{repeated}{of_g}; it reads {past}"]),
        ("growth factors", [analysis.amplification_line, *(["where f = g = lambda u / 2"] if equation.split else [])]),
        ("zero-stable", [zero_stable_text(analysis)]),
        ("negative axis", _or_reason(lambda: _axis(analysis, "-x", analysis.stability_interval))),
        ("imaginary axis", _or_reason(lambda: _axis(analysis, "i x", analysis.imaginary_limit))),
        ("modified equation", _or_reason(lambda: _modified(analysis))),
    ]
    about = [f"network: {scheme.network}"] if scheme.network else []
    about += [f"reference: {scheme.reference}"] if scheme.reference else []
    about += ["of its static part: in a network the coefficients depend on the state"] * any(
        one.varies for one in scheme.learned
    )
    aliases = aliases_of(scheme.name)
    about += [f"aliases: {', '.join(aliases)}"] if aliases else []
    return FactSheet(", ".join([scheme.name, *_numbers(scheme)]), about, facts)


def scheme_align(analysis: SchemeAnalysis) -> str:
    """Return the step, the growth factors and the modified equation, aligned at their equals signs."""
    modified = [line for line in _or_reason(lambda: [*analysis.modified_lines()]) if isinstance(line, Line)]
    equations = (*analysis.step_lines, analysis.amplification_line, *modified)
    lines = [line.latex.replace(" = ", " &= ", 1) for line in equations]
    body = " \\\\\n".join(f"  {line}" for line in lines)
    return f"\\begin{{align*}}\n{body}\n\\end{{align*}}"


def scheme_values(analysis: SchemeAnalysis) -> dict[str, object]:
    """Return the facts as strings, numbers and lists, or None if unknown."""

    def expression(derive: Callable[[], object]) -> int | float | str | None:
        try:
            return _number_or_text(derive())
        except UserError:
            return None

    scheme, modified = analysis.scheme, _or_reason(lambda: [*analysis.modified_lines()])
    return {
        "scheme": scheme.name,
        "k": None if scheme.k is None else _number_or_text(scheme.k),
        "network": scheme.network,
        "reference": scheme.reference,
        "aliases": aliases_of(scheme.name),
        "step": [str(line) for line in analysis.step_lines],
        "equation": analysis.equation_line,
        "order": analysis.order,
        "stages": scheme.stages,
        "past_states": scheme.steps,
        "amplification": str(analysis.amplification.as_expr()),
        "zero_stable": analysis.zero_stable if isinstance(analysis.zero_stable, bool) else str(analysis.zero_stable),
        "stability_interval": expression(lambda: analysis.stability_interval),
        "imaginary_limit": expression(lambda: analysis.imaginary_limit),
        "modified_equation": [str(line) for line in modified if isinstance(line, Line)],
        "latex": analysis.latex,
    }


def _or_reason(derive: Callable[[], list[Entry]]) -> list[Entry]:
    """Return the entries, or why there are none: a user's scheme may have no such equation or formula."""
    try:
        return derive()
    except UserError as error:
        return [f"unknown ({error})"]


def _orders(analysis: SchemeAnalysis) -> list[str]:
    """Return the order against the scheme's equation; also for nonlinear f and against `u' = f`, if they differ."""
    equation, orders = analysis.equation, [str(analysis.order)]
    if equation.linear:
        nonlinear = replace(equation, linear=False)
        orders.append(f"{analysis.order_against(nonlinear)} against {plain_equation(nonlinear)} for nonlinear f")
    if equation.mass not in (0, 1) and not equation.partitioned:
        orders.append(f"{analysis.order_against(Equation())} against u' = f")
    return orders


def _rescaling(equation: Equation) -> list[str]:
    """State the step size with which the equation is `u' = f`."""
    if equation.mass == 1:
        return []
    if equation.mass == 0:
        return ["consistent with no equation of first order"]
    return [f"which is u' = f with the step {plain(dt / sympy.sympify(equation.mass))}"]


def _numbers(scheme: Scheme) -> list[str]:
    """List the coefficients that were passed as numbers."""
    if not isinstance(scheme.k, dict):
        number = scheme.k is not None and not getattr(scheme.k, "free_symbols", ())
        return [f"k = {scheme.k}"] if number else []
    numbers = {name: scheme.k[name] for name in scheme.arguments if not getattr(scheme.k[name], "free_symbols", ())}
    return [f"{name} = {_format(value)}" for name, value in numbers.items()]


def _number_or_text(value: object) -> int | float | str:
    """Return a finite number as a number; what has symbols, rows or names, as text."""
    if isinstance(value, (dict, tuple)):
        return _format(value)
    exact = sympy.sympify(value)
    if not exact.is_number or not exact.is_finite:
        return str(value)
    return int(exact) if exact.is_Integer else float(exact)


def _format(value: Coefficient) -> str:
    """Format a number, rows of numbers (`[1/2, 1/2]`), or a dict of them."""
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_format(inner)}" for name, inner in value.items())
    return f"[{', '.join(map(_format, value))}]" if isinstance(value, tuple) else str(value)


def zero_stable_text(analysis: SchemeAnalysis) -> str:
    """Return yes, no, or the coefficients for which the scheme is zero-stable."""
    stable = analysis.zero_stable
    if isinstance(stable, bool):
        return "yes" if stable else "no"
    (name,) = map(str, analysis.amplification.as_expr().subs(z, 0).free_symbols - {zeta})
    if stable is sympy.S.EmptySet:
        return f"for no {name}"
    pieces = stable.args if isinstance(stable, sympy.Union) else (stable,)
    ranges = [_range(piece, name) for piece in pieces]
    euler = {one.name: one.at(0) for one in analysis.scheme.euler_start if not one.shape()}
    free = {str(symbol) for symbol in analysis.companion.subs(z, 0).free_symbols}
    if euler.keys() == free and euler[name] not in stable:  # r = 1, which is zero-stable for x = 0 only
        ranges.append(_format(euler))
    return "for " + " or ".join(ranges)


def _range(piece: sympy.Set, name: str) -> str:
    if isinstance(piece, sympy.FiniteSet):
        return " or ".join(f"{name} = {value}" for value in piece)
    low = "" if piece.start == -sympy.oo else f"{piece.start} {'<' if piece.left_open else '<='} "
    high = "" if piece.end == sympy.oo else f" {'<' if piece.right_open else '<='} {piece.end}"
    return f"{low}{name}{high}"


def _axis(analysis: SchemeAnalysis, point: str, limit: sympy.Expr) -> list[Entry]:
    """State how far along an axis the scheme is stable, with a separate line for an exceptional k."""
    *special, (general, _) = limit.args if isinstance(limit, sympy.Piecewise) else [(limit, sympy.true)]
    lines: list[Entry] = [_interval(analysis, point, general)]
    for value, condition in special:
        there = type(analysis)(analysis.scheme.name, **{str(condition.lhs): condition.rhs})
        lines.append(f"at {condition.lhs} = {condition.rhs}: {_interval(there, point, value)}")
    return lines


def _interval(analysis: SchemeAnalysis, point: str, limit: sympy.Expr) -> str:
    """State the x for which `z = dt lambda` is stable, with `<` at an end that is not stable itself."""
    m = analysis.equation.derivative
    product = "dt lambda" if m == 1 else f"dt^{m} lambda"
    low = "<=" if analysis.stable(0) else "<"
    if limit == 0:
        return "stable nowhere but at 0" if low == "<=" else "stable nowhere"
    if limit is sympy.oo:
        return f"stable for every {product} = {point}, 0 {low} x"
    high = "<=" if analysis.stable((-1 if point == "-x" else sympy.I) * limit) else "<"
    return f"stable for {product} = {point}, 0 {low} x {high} {_number(limit)}"


def _number(limit: sympy.Expr) -> str:
    """Format a limit exactly if that is short, and in digits if it is not rational."""
    if limit.free_symbols or limit.is_Rational:
        return plain(limit)
    digits = str(sympy.N(limit, 7))
    return digits if limit.has(sympy.CRootOf, sympy.Float) else f"{plain(limit)} = {digits}"


def _modified(analysis: SchemeAnalysis) -> list[Entry]:
    lines: list[Entry] = [*analysis.modified_lines()]
    in_derivatives = analysis.amplification.degree(z) == 1 and not analysis.equation.partitioned
    linear_only = in_derivatives and analysis.scheme.steps > 1 and analysis.between_states
    return [*lines, "for linear f"] if linear_only else lines


def _wrapped(label: str, text: str) -> list[str]:
    """Wrap to 80 columns; an equation breaks only before a sign."""
    if " = " in text:
        text = re.sub(r"(?<![-+=]) (?![-+=])", _NO_BREAK, text)
        text = re.sub(r"(?<=[-+=]) ", _NO_BREAK, text)
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=f"  {label:<19}", subsequent_indent=" " * 23, break_long_words=False
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]
