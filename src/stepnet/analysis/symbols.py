"""The symbols of the analysis, and schemes with exact coefficients."""

from __future__ import annotations

import copy

import sympy

from stepnet.schemes import Coefficient, LinearMultistep, Scheme, get_scheme, symbol
from stepnet.schemes import exact as exact

dt, k = symbol("dt"), symbol("k")
zeta = sympy.Symbol("zeta")  # the root variable: u_n = zeta^n
z = sympy.Symbol("z")  # dt^m lambda, for mass u^(m) = lambda u


def subject(scheme: str | Scheme, **parameters: Coefficient) -> Scheme:
    """Return the scheme to analyse, with exact coefficients.

    A name stands for the whole family: a trainable `k` is the symbol `k`. A number, in a scheme or in `parameters`,
    becomes a rational.
    """
    method = get_scheme(scheme, **parameters)
    if isinstance(scheme, str) and method.trainable:
        scalars = {one.name: sympy.Symbol(one.name, real=True) for one in method.learned if not one.shape()}
        symbols = {"k": k} if not method.learned else scalars
        if symbols.keys() - parameters.keys():
            method = get_scheme(scheme, **{**symbols, **parameters})
    method = method.converted(exact) if isinstance(method, LinearMultistep) else copy.copy(method)
    method.k = exact(method.k)
    return method


def vanishes(c: Coefficient) -> bool:
    """Whether a coefficient is 0: exactly for symbols and rationals, up to rounding for floats."""
    if not hasattr(c, "free_symbols"):
        return bool(abs(c) < 1e-12)
    if c.is_Rational:
        return bool(c == 0)
    reduced = sympy.cancel(c)  # enough for a rational function of k; roots need `equals`
    return bool(reduced == 0 or (not is_rational(reduced) and c.equals(0)))


def is_rational(c: sympy.Expr) -> bool:
    """Whether it is a rational function of its symbols with rational coefficients."""
    return bool(c.is_rational_function(*c.free_symbols)) and all(a.is_Rational for a in c.atoms(sympy.Number))
