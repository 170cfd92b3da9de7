"""`stepnet scheme`: what numerical analysis says of a scheme."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from stepnet.commands.columns import print_table
from stepnet.errors import UserError, unknown

if TYPE_CHECKING:
    from stepnet import schemes

WIDTH = 80
_NO_BREAK = "\u00a0"


@dataclass
class Scheme:
    """Show a scheme: its step, order, stability and modified equation. Without a name, list all schemes."""

    name: Annotated[Positional[str | None], arg(metavar="NAME")] = None
    """A scheme or an alias, such as lm, rk4, neumann3; or a noise of stochastic training, such as shake_shake."""
    k: Annotated[float | None, arg(metavar="K")] = None
    """The coefficient k; without it, it stays a symbol."""
    p: Annotated[float | None, arg(metavar="P")] = None
    """The survival probability of stochastic_depth; without it, it stays a symbol."""
    plot: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write the stability region and the error against dt (of a noise, its weak errors) to this file: png, pdf, svg."""
    latex: bool = False
    """Print the equations for a paper instead."""

    def __call__(self) -> None:
        if self.name is None:
            if self.k is not None or self.p is not None or self.plot or self.latex:
                raise UserError("--k, --p, --plot and --latex need a scheme: stepnet scheme lm --k -0.5")
            print_all()
            return
        # the picture first, so that one that cannot be had is all that is told
        print(self._drawn_noise(self.name) if self._names_noise(self.name) else self._drawn_scheme(self.name))
        if self.plot is not None:
            print(f"\nwrote {self.plot}")

    def _names_noise(self, name: str) -> bool:
        """Whether it is a noise of stochastic training; an option that its kind does not have is refused."""
        from stepnet.analysis import list_noises
        from stepnet.schemes import list_schemes

        if name not in list_noises():
            if name not in list_schemes() and get_close_matches(name, list_noises()):
                raise unknown("noise", name, list_noises())
            if self.p is not None:
                raise UserError(f"scheme {name!r} has no p: leave out --p {self.p:g}")
            return False
        if self.k is not None or self.latex:
            raise UserError(f"{name} is a noise: it has no --k or --latex")
        return True

    def _drawn_noise(self, name: str) -> str:
        from stepnet.commands.noise import describe_noise, draw_noise

        if self.plot is not None:
            draw_noise(name, self.p, self.plot)
        return describe_noise(name, self.p)

    def _drawn_scheme(self, name: str) -> str:
        from stepnet.analysis import subject
        from stepnet.schemes import get_scheme

        if self.k is not None and get_scheme(name).k is None:
            raise UserError(f"scheme {name!r} has no k: leave out --k {self.k:g}")
        scheme = subject(name if self.k is None else get_scheme(name, k=self.k))
        if self.plot is not None:
            from stepnet.report.scheme import draw_scheme

            draw_scheme(get_scheme(name) if self.k is None else scheme, self.plot)
        return latex(scheme) if self.latex else describe(scheme)


def print_all() -> None:
    """One line for each scheme; the orders are found by analysis, not read off the class."""
    from stepnet.analysis import list_noises, order, plain_equation, subject
    from stepnet.schemes import list_schemes

    found = sorted(map(subject, list_schemes()), key=lambda scheme: (scheme.equation.partitioned, scheme.steps))
    rows = [  # one-step methods, multistep methods, pairs
        (scheme.name, str(order(scheme)), str(scheme.stages), plain_equation(scheme.equation), scheme.network)
        for scheme in found
    ]
    print_table(["scheme", "order", "stages", "equation", "network"], rows)
    print(f"\nnoises: {', '.join(list_noises())}")
    print("stepnet scheme NAME tells more of one.")


def describe(scheme: schemes.Scheme) -> str:
    """The scheme's analysis as text, 80 columns wide."""
    from stepnet import analysis
    from stepnet.schemes import Equation, aliases_of

    equation, step, orders = scheme.equation, analysis.step_lines(scheme), [str(analysis.order(scheme))]
    if not equation.partitioned and (equation.linear or equation.mass != 1):
        against = analysis.order(scheme, against=Equation())
        orders.append(f"{against} against u' = f" + (" for nonlinear f" if equation.linear else ""))
    places = sum(line.function != "" for line in step)  # where f is evaluated, told in lines of their own
    repeated = f", at {places} places" if 0 < places < scheme.stages else ""
    facts: list[tuple[str, list[str]]] = [
        ("step", [str(line) for line in step]),
        ("equation", [analysis.plain_equation(equation), *_rescaling(equation)]),
        ("order", orders),
        ("evaluations of f", [f"{scheme.stages} in a step{repeated}; it reads {_count(scheme.steps, 'past state')}"]),
        ("growth factors", [str(analysis.amplification_line(scheme))]),
        ("zero-stable", [_verdict(analysis.zero_stable(scheme))]),
        ("negative axis", _told(lambda: _axis(scheme, "-x", analysis.stability_interval(scheme)))),
        ("imaginary axis", _told(lambda: _axis(scheme, "i x", analysis.imaginary_limit(scheme)))),
        ("modified equation", _told(lambda: _modified(scheme))),
    ]
    heading = scheme.name if scheme.k is None or analysis.is_symbolic(scheme) else f"{scheme.name}, k = {scheme.k}"
    about = [f"network: {scheme.network}"] if scheme.network else []
    about += [f"reference: {scheme.reference}"] if scheme.reference else []
    aliases = aliases_of(scheme.name)
    about += [f"aliases: {', '.join(aliases)}"] if aliases else []
    lines = [heading, *(f"  {text}" for text in about), ""]
    for label, texts in facts:
        for i, text in enumerate(texts):
            lines += _wrapped(label if i == 0 else "", text)
    return "\n".join(lines)


def latex(scheme: schemes.Scheme) -> str:
    """The step, the growth factors and the modified equation, aligned at their equals signs."""
    from stepnet import analysis

    modified = _told(lambda: [line.latex for line in analysis.modified_lines(scheme)])
    lines = [line.latex for line in (*analysis.step_lines(scheme), analysis.amplification_line(scheme))]
    lines += [line for line in modified if " = " in line]
    body = " \\\\\n".join("  " + line.replace(" = ", " &= ", 1) for line in lines)
    return f"\\begin{{align*}}\n{body}\n\\end{{align*}}"


def _told(find: Callable[[], list[str]]) -> list[str]:
    """What was found, or why it was not: a scheme of a user's own may have no such equation or formula."""
    try:
        return find()
    except UserError as error:
        return [f"unknown ({error})"]


def _modified(scheme: schemes.Scheme) -> list[str]:
    from stepnet.analysis import between_states, modified_lines

    lines = [str(line) for line in modified_lines(scheme)]
    return [*lines, "for linear f"] if scheme.steps > 1 and between_states(scheme) else lines


def _wrapped(label: str, text: str) -> list[str]:
    """At most 80 columns; an equation breaks only before a sign."""
    if " = " in text:
        text = re.sub(r"(?<![-+=]) (?![-+=])", _NO_BREAK, text)
        text = re.sub(r"(?<=[-+=]) ", _NO_BREAK, text)
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=f"  {label:<19}", subsequent_indent=" " * 23, break_long_words=False
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _rescaling(equation: Any) -> list[str]:
    """What the mass means for someone who wanted `u' = f`."""
    import sympy

    from stepnet.analysis import plain
    from stepnet.analysis.symbols import dt

    if equation.mass == 1:
        return []
    if equation.mass == 0:
        return ["so it is consistent with no equation of first order"]
    return [f"which is u' = f with the step {plain(dt / sympy.sympify(equation.mass))}"]


def _verdict(stable: Any) -> str:
    """yes, no, or the k for which it is."""
    import sympy

    if isinstance(stable, bool):
        return "yes" if stable else "no"
    if stable is sympy.S.EmptySet:
        return "for no k"
    pieces = stable.args if isinstance(stable, sympy.Union) else (stable,)
    return "for " + " or ".join(_range(piece) for piece in pieces)


def _range(piece: Any) -> str:
    import sympy

    if isinstance(piece, sympy.FiniteSet):
        return " or ".join(f"k = {value}" for value in piece)
    low = "" if piece.start == -sympy.oo else f"{piece.start} {'<' if piece.left_open else '<='} "
    high = "" if piece.end == sympy.oo else f" {'<' if piece.right_open else '<='} {piece.end}"
    return f"{low}k{high}"


def _axis(scheme: schemes.Scheme, point: str, limit: Any) -> list[str]:
    """How far along an axis the scheme is stable; a line of its own for a k that is unlike the others."""
    import sympy

    from stepnet.schemes import get_scheme

    pieces: Any = limit.args if isinstance(limit, sympy.Piecewise) else [(limit, True)]
    lines = [_interval(scheme, point, pieces[-1][0])]
    for value, condition in pieces[:-1]:
        lines.append(f"at k = {condition.rhs}: {_interval(get_scheme(scheme.name, k=condition.rhs), point, value)}")
    return lines


def _interval(scheme: schemes.Scheme, point: str, limit: Any) -> str:
    """`z = dt lambda`, and the x for which it is stable, with `<` at an end that is not stable itself."""
    import sympy

    from stepnet.analysis import stable

    m = scheme.equation.derivative
    z = "dt lambda" if m == 1 else f"dt^{m} lambda"
    low = "<=" if stable(scheme, 0) else "<"
    if limit == 0:
        return "stable nowhere but at 0" if low == "<=" else "stable nowhere"
    if limit is sympy.oo:
        return f"stable for every {z} = {point}, 0 {low} x"
    high = "<=" if stable(scheme, (-1 if point == "-x" else sympy.I) * limit) else "<"
    return f"stable for {z} = {point}, 0 {low} x {high} {_number(limit)}"


def _number(limit: Any) -> str:
    """Exactly where that is short, and in digits where it is not rational."""
    import sympy

    from stepnet.analysis import plain

    if limit.free_symbols or limit.is_Rational:
        return plain(limit)
    digits = str(sympy.N(limit, 7))
    return digits if limit.has(sympy.CRootOf, sympy.Float) else f"{plain(limit)} = {digits}"
