"""The analysis of one noise: its equation, its moments, the condition of appendix B, its weak orders."""

from __future__ import annotations

import math
from functools import cached_property

import sympy

from stepnet.analysis.condition import REQUIRED, Term, WeakCondition, increment_moment, one_step_error, weak_condition
from stepnet.analysis.notation import plain
from stepnet.analysis.sde import StochasticEquation, stochastic_equation, stochastic_step
from stepnet.analysis.symbols import dt
from stepnet.analysis.weak import LARGE_STEPS, SMALL_STEPS, Problem, weak_error, weak_order
from stepnet.arguments import checked
from stepnet.errors import UserError
from stepnet.schemes.noises import Noise, Parameter, get_noise, t

SAMPLES = 100_000
MOMENTS = (1, 2, 3)
NEAR = 0.05  # largest deviation of a slope that counts as its order
LARGEST, LARGEST_TIMED = 41, 15  # largest powers of 2 tried as 1/dt; if p depends on time, every step is computed
TIMED_STEPS = tuple(2**n for n in range(9, 14))
ROUNDING = 1e-14  # of one step
g = sympy.Symbol("g", positive=True)  # the damping


class NoiseAnalysis:
    """What theory says of a noise that multiplies f, and what exact moments and sampling give.

    With a `damping` g the noise multiplies the f of `lm`: the pair of section 3.2. If its parameter is a symbol, weak
    orders are measured at the values in `noise.examples`.
    """

    def __init__(
        self, noise: str | Noise, samples: int = SAMPLES, damping: float | None = None, **parameters: Parameter
    ) -> None:
        self.noise = get_noise(noise, **parameters)
        self.samples = samples
        self.damping = damping
        self.problem = Problem(damping=damping)

    @cached_property
    def equation(self) -> StochasticEquation:
        """`dX = drift dt + diffusion dB`, or that of the damped pair."""
        return stochastic_equation(self.noise, self.damping)

    @cached_property
    def damped_equation(self) -> StochasticEquation:
        """The equation of section 3.2: the same noise in an `lm` step."""
        return stochastic_equation(self.noise, g if self.damping is None else self.damping)

    @cached_property
    def increments(self) -> list[sympy.Expr]:
        """`E dW`, `E dW^2`, `E dW^3`."""
        return [increment_moment(self.noise, m) for m in MOMENTS]

    @cached_property
    def condition(self) -> WeakCondition:
        """Whether `|E dW| + |E dW^3| + |E dW^2 - dt| <= K dt^2`."""
        return weak_condition(self.noise)

    @cached_property
    def one_step_errors(self) -> list[Term]:
        """The errors of one step in the moments of X, for `f = a X`."""
        return [one_step_error(self.noise, m, self.damping) for m in MOMENTS]

    @cached_property
    def weak_orders(self) -> list[sympy.Rational]:
        """The orders of the first three moments, derived symbolically."""
        return [error.order - 1 for error in self.one_step_errors]

    @cached_property
    def numbers(self) -> list[Noise]:
        """The noise if its parameter is a number, otherwise the noise with each of its examples."""
        if not (self.noise.mean.free_symbols | self.noise.deviation.free_symbols) - {t}:
            return [self.noise]
        return [type(self.noise)(**example) for example in self.noise.examples]

    def asymptotic_from(self, noise: Noise, moment: int, order: sympy.Rational) -> int | None:
        """Return the least 1/dt, a power of 2, from which the exact slope stays within NEAR of the order, or None."""
        sizes = [2**n for n in range(3, LARGEST_TIMED if noise.depends_on_time else LARGEST)]
        since, coarse = None, abs(weak_error(noise, sizes[0], moment, self.problem).error)
        for n in sizes[1:]:
            fine = abs(weak_error(noise, n, moment, self.problem).error)
            if fine < ROUNDING * n ** (1 if self.damping is None else 2):  # Y divides by dt
                break
            near = abs(math.log2(coarse / fine) - order) < NEAR
            since, coarse = (since or n // 2) if near else None, fine
        return since

    def as_dict(self) -> dict[str, object]:
        """The symbolic results as plain values, for JSON."""
        return {
            "noise": self.noise.name,
            "equation": str(self.equation),
            "damped_equation": str(self.damped_equation),
            "increments": [str(moment) for moment in self.increments],
            "condition": str(self.condition),
            "holds": self.condition.holds,
            "one_step_errors": {error.name: plain(error.value) for error in self.one_step_errors},
            "weak_orders": {_power("E X", m): float(order) for m, order in zip(MOMENTS, self.weak_orders, strict=True)},
        }

    def __str__(self) -> str:
        heading, facts = self.noise.heading, [("noise", self.noise.about)]
        first, second = self.damped_equation.lines
        if self.damping is None:
            facts += [("equation", str(self.equation)), ("with lm", f"{first} (section 3.2)"), ("", second)]
        else:
            heading += f", with lm, g = {self.damping:g}"
            facts += [("step", damped_scheme()), ("", "which is lm with k = g dt - 1 and the step dt^2")]
            facts += [("equation", first), ("", second)]
        facts += [(_power("E dW", m), plain(moment)) for m, moment in zip(MOMENTS, self.increments, strict=True)]
        facts += [("condition", "|E dW| + |E dW^3| + |E dW^2 - dt| <= K dt^2 (appendix B)"), ("", str(self.condition))]
        facts += [
            (error.name, f"off by {plain(error.value)} in a step, for f = a X")
            for error in self.one_step_errors
            if error.order < REQUIRED
        ]
        lines = [heading, *(f"  {label:<12}{text}" for label, text in facts), ""]
        lines.append(_row("weak order", "", [_power("E X", m) for m in MOMENTS]))
        lines.append(_row("", "by symbols", [str(order) for order in self.weak_orders]))
        notes: list[str] = []
        for noise in self.numbers:
            rows, early = self._measured(noise)
            lines += rows
            notes += early
        return "\n".join(lines + notes)

    def _measured(self, noise: Noise) -> tuple[list[str], list[str]]:
        """Return slopes for a linear f: exact at small steps, exact at large ones, and sampled at large ones.

        A slope that differs from the order is marked, with a note on the dt from which it agrees.
        """
        orders = {m: one_step_error(noise, m, self.damping).order - 1 for m in MOMENTS}
        early: dict[int, None] = {}

        def exact(moment: int, steps: tuple[int, ...]) -> str:
            measured = weak_order(noise, moment, self.problem, steps)
            if abs(measured.slope - orders[moment]) <= NEAR:
                return str(measured)
            early[moment] = None
            return f"{measured} *"

        def sampled(moment: int) -> str:
            try:
                return str(weak_order(noise, moment, self.problem, samples=self.samples))
            except UserError:  # the error is smaller than that of sampling
                return "not seen"

        small = TIMED_STEPS if noise.depends_on_time or self.damping is not None else SMALL_STEPS
        rows = [
            _row(label, f"1/dt {steps[0]} … {steps[-1]}", [exact(m, steps) for m in MOMENTS])
            for label, steps in ((noise.value if len(noise.value) < 12 else "", small), ("", LARGE_STEPS))
        ]
        rows.append(_row("", f"{self.samples:,} paths", [sampled(m) for m in MOMENTS]))
        return rows, [self._note(noise, m, orders[m]) for m in early]

    def _note(self, noise: Noise, moment: int, order: sympy.Rational) -> str:
        since = self.asymptotic_from(noise, moment, order)
        seen = f"within {NEAR} of it from 1/dt = {since} on" if since else "near it at no dt that was tried"
        name = _power("E X", moment) + (f" at {noise.value}" if noise.value else "")
        return f"  * not asymptotic: the order of {name} is {order};\n    the exact slope is {seen}"


@checked
def analyse_noise(
    noise: str | Noise, samples: int = SAMPLES, damping: float | None = None, **parameters: Parameter
) -> NoiseAnalysis:
    """Every fact of a noise: `analyse_noise("stochastic_depth")` for every p, with `p=0.2` for one."""
    return NoiseAnalysis(noise, samples, damping, **parameters)


def damped_scheme() -> str:
    """Format the `lm` step with noise, its weights from one step on symbols."""
    now, before, f, gate = sympy.symbols("X_n X_{n-1} f gate")
    mean = get_noise("stochastic_depth", p=gate)  # at xi = 0 the gate is its mean
    new, _ = stochastic_step(mean, (lambda x: f,), (now, (now - before) / dt), sympy.S.Zero, dt, g)
    weights = [sympy.expand(new).coeff(symbol) for symbol in (now, before, f)]
    first, second = plain(weights[0]), plain(sympy.expand(-weights[1]))
    return f"X_{{n+1}} = ({first}) X_n - ({second}) X_{{n-1}} + {plain(weights[2])} f(X_n)"


def _row(label: str, way: str, cells: list[str]) -> str:
    return (f"  {label:<12}{way:<19}" + "".join(f"{cell:<15}" for cell in cells)).rstrip()


def _power(base: str, m: int) -> str:
    return base if m == 1 else f"{base}^{m}"
