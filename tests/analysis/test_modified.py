"""Modified equations: the paper's, the classical ones, and a run that follows them."""

from functools import cache
from itertools import product, repeat

import mpmath
import numpy as np
import pytest
import sympy
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from stepnet import UserError, get_scheme
from stepnet.analysis import analyse, modified_equation
from stepnet.analysis.modified import differential_name, f, t, u
from stepnet.analysis.symbols import dt, k, z, zeta
from stepnet.schemes import Point, advance, march


def D(n):
    return u(t).diff(t, n)


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("euler", D(1) + dt / 2 * D(2)),
        ("lm", (1 + k) * D(1) + (1 - k) * dt / 2 * D(2)),
        ("midpoint2", D(1) + dt**2 / 6 * D(3)),
        ("leapfrog", D(2) + dt**2 / 12 * D(4)),
        ("ab2", D(1) + 5 * dt**2 / 12 * D(3)),
        ("ab3", D(1) + 3 * dt**3 / 8 * D(4)),
        ("backward_euler", D(1) - dt / 2 * D(2)),
    ],
)
def test_in_derivatives(name, left):
    """Euler and lm as in the paper; the others with their classical error constants."""
    equation = modified_equation(name)
    assert sympy.expand(equation.lhs - left) == 0 and equation.rhs == f


def test_more_terms_of_lm():
    third = modified_equation("lm", terms=3).lhs - modified_equation("lm", terms=2).lhs
    assert sympy.expand(third - (1 + k) * dt**2 / 6 * D(3)) == 0


def test_in_elementary_differentials():
    """Euler's is the classical `f - dt/2 f'f + dt^2 (f''(f,f)/12 + f'f'f/3)` (Hairer, Lubich, Wanner, IX.1)."""
    S = sympy.Symbol
    euler = modified_equation("euler", terms=3, form="differentials").rhs
    wanted = f - dt / 2 * S("f'f") + dt**2 * (S("f''(f, f)") / 12 + S("f'f'f") / 3)
    assert sympy.expand(euler - wanted) == 0
    backward = modified_equation("backward_euler", terms=3, form="differentials").rhs
    assert sympy.expand(backward - euler.subs(dt, -dt)) == 0  # its adjoint
    midpoint = modified_equation("midpoint").rhs
    assert sympy.expand(midpoint - f + dt**2 * (S("f''(f, f)") / 24 + S("f'f'f") / 6)) == 0


def test_a_pair():
    """Symplectic Euler: `X' = f - dt/2 f'g`, `Y' = g + dt/2 g'f`."""
    first, second = modified_equation("coupled")
    assert sympy.expand(first.rhs - (f - dt / 2 * sympy.Symbol("f'g"))) == 0
    assert sympy.expand(second.rhs - (sympy.Symbol("g") + dt / 2 * sympy.Symbol("g'f"))) == 0


PLANE = sympy.symbols("x y")
FIELD = (sympy.sin(PLANE[1]) + PLANE[0] * PLANE[1] / 2, -sympy.cos(PLANE[0]) + PLANE[1] ** 2 / 3 - PLANE[0] / 2)


@cache
def differential(tree):
    """An elementary differential of `FIELD`, by differentiation: in a plane no two trees give the same."""
    children = [differential(child) for child in tree[1:]]
    terms = product(range(2), repeat=len(children))
    chosen = [
        (indices, sympy.prod([child[j] for child, j in zip(children, indices, strict=True)])) for indices in terms
    ]
    return tuple(sum(partial(part, indices) * weight for indices, weight in chosen) for part in FIELD)


def partial(expression, indices):
    return expression.diff(*(PLANE[j] for j in indices)) if indices else expression


def trees(size):
    """All rooted trees of this size, as the analysis writes them."""
    return [("f", *children) for children in forests(size - 1)]


def forests(size, largest=None):
    found = [()] if size == 0 else []
    for n in range(1, size + 1):
        for tree in trees(n):
            if largest is None or str(tree) <= largest:
                found += [(*rest, tree) for rest in forests(size - n, str(tree))]
    return found


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("euler", 4),
        ("heun", 3),
        ("midpoint", 2),
        ("rk4", 2),
        ("rk4_38", 2),
        ("picard3", 3),
        ("fractal3", 3),
        ("full_fractal3", 2),
        ("backward_euler", 3),
        ("lm", 3),
        ("lm+heun", 3),
        ("lm+fractal3", 2),
        ("lm+picard2", 2),
    ],
)
def test_a_step_follows_its_modified_equation(name, terms):
    """With its terms up to dt^(q-1) the field's flow over dt is the step but for dt^(q+1), on a nonlinear system.

    A multistep method is given the past of that flow.
    """
    scheme = get_scheme(name)
    equation = modified_equation(scheme, terms, form="differentials")
    q = sympy.degree(sympy.expand(equation.rhs), dt) + 1
    known = {differential_name(tree): differential(tree) for n in range(1, q + 1) for tree in trees(n)}
    right = equation.rhs / scheme.equation.mass
    field = [right.subs({s: known[s.name][j] for s in right.free_symbols - {dt}}) for j in range(2)]
    f, slope = sympy.lambdify(PLANE, FIELD), sympy.lambdify((dt, *PLANE), field)
    errors, start = [], np.array([0.4, 0.7])

    def rhs(u, c, i):
        return np.array(f(*u))

    for h in (0.05, 0.025):

        def flow(time, h=h):
            if not time:
                return start
            run = solve_ivp(lambda _, u: slope(h, *u), (0, time), start, method="DOP853", rtol=1e-13, atol=1e-15)
            return run.y[:, -1]

        past = tuple(Point(flow(-j * h), rhs) for j in range(scheme.steps))
        errors.append(np.abs(advance(scheme, past, h, scheme.k) - flow(h)).max())
    assert np.log2(errors[0] / errors[1]) == pytest.approx(int(q) + 1, abs=0.25)


@pytest.mark.parametrize("k", [-0.4, 0.5])
def test_lm_over_polynet_s_truncation_follows_its_modified_equation_on_a_linear_flow(k):
    """`lm+neumann2` is for linear f: on `u' = A u` the field is `A + c_1 dt A^2 + c_2 dt^2 A^3`."""
    scheme, A = get_scheme("lm+neumann2", k=k), np.array([[-0.3, 1.0], [-0.8, -0.5]])
    right = modified_equation(scheme, 3).rhs / scheme.equation.mass
    powers = {"f": A, "f'f": A @ A, "f'f'f": A @ A @ A}

    def error(steps):
        h = 1 / steps
        field = sum(float(right.coeff(sympy.Symbol(name)).subs(dt, h)) * power for name, power in powers.items())
        start = np.array([1.0, 0.5])
        states = march(
            scheme,
            repeat(lambda u, c, i: A @ u, steps),
            start,
            h,
            past=[Point(expm(-h * field) @ start, lambda u, c, i: A @ u)],
        )
        *_, last = states
        return np.abs(last - expm(field) @ start).max()

    assert np.log2(error(100) / error(200)) == pytest.approx(3, abs=0.1)


LEAF = ("f",)
TREES = [LEAF, ("f", LEAF), ("f", LEAF, LEAF), ("f", ("f", LEAF))]


@pytest.mark.parametrize("name", ["lm", "midpoint2", "leapfrog", "ab2", "ab3"])
def test_the_principal_root_follows_the_derivatives(name):
    """On `mass u^(m) = lambda u` a run goes as `e^(mu t)`; the equation tells mu but for its first omitted term."""
    scheme = get_scheme(name)
    m, residuals = scheme.equation.derivative, []
    left = modified_equation(scheme, 3).lhs
    for h in (0.02, 0.01):
        lam = mpmath.mpf(-1) if m == 1 else mpmath.mpf(1)
        with mpmath.workdps(40):
            at = sympy.Float(lam * mpmath.mpf(h) ** m, 40)
            row = sympy.Poly(analyse(scheme).amplification.as_expr().subs(z, at), zeta)
            wanted = lam / mpmath.mpf(str(float(scheme.equation.mass))) if m == 1 else mpmath.sqrt(lam)
            roots = [mpmath.mpmathify(r) for r in row.nroots(n=40)]
            principal = min(roots, key=lambda root: abs(root - mpmath.exp(wanted * h)))
            mu = mpmath.log(principal) / h
            value = left.subs(u(t), sympy.exp(sympy.Symbol("mu") * t)).doit().subs(t, 0)
            residuals.append(abs(value.subs({dt: h, sympy.Symbol("mu"): sympy.Float(mu, 40)}) - lam))
    omitted = modified_equation(scheme, 4).lhs - left
    assert float(sympy.log(residuals[0] / residuals[1], 2)) == pytest.approx(int(sympy.degree(omitted, dt)), abs=0.1)


def test_a_symmetric_method_has_every_term_that_was_asked_for():
    """`sinh(dt D)/dt` for the two-step midpoint rule: only odd derivatives."""
    left = modified_equation("midpoint2", terms=12).lhs
    wanted = sum(dt ** (2 * j) / sympy.factorial(2 * j + 1) * D(2 * j + 1) for j in range(12))
    assert sympy.expand(left - wanted) == 0


def test_names_of_differentials():
    assert [differential_name(tree) for tree in TREES] == ["f", "f'f", "f''(f, f)", "f'f'f"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rk4", 2, "derivatives"), "rk4 is not a linear multistep method"),
        (("leapfrog", 2, "differentials"), "leapfrog solves u'' = f: take form='derivatives'"),
        ((get_scheme("lm", k=-1), 2, "differentials"), "follows no flow"),
        (("euler", 2, "words"), "form = 'words'"),
        (("euler", 0), "terms = 0"),
    ],
)
def test_a_form_that_a_scheme_lacks_is_told(arguments, message):
    with pytest.raises(UserError, match=message):
        modified_equation(*arguments)


def test_a_number_for_k_gives_numbers():
    equation = modified_equation(get_scheme("lm", k=-0.5))
    assert sympy.expand(equation.lhs - (D(1) / 2 + 3 * dt / 4 * D(2))) == 0


def test_a_step_that_evaluates_f_between_its_states_is_known():
    assert [name for name in ("euler", "lm", "ab3", "backward_euler") if analyse(name).between_states] == []
    assert all(analyse(name).between_states for name in ("heun", "rk4", "neumann2", "picard2"))
