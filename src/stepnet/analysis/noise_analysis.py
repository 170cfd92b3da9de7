"""One noise, asked once: its equation, its moments, the condition of appendix B, its weak orders."""

from __future__ import annotations

from functools import cached_property

import sympy

from stepnet.analysis.condition import REQUIRED, Term, WeakCondition, increment_moment, one_step_error, weak_condition
from stepnet.analysis.noise_laws import Noise, Parameter, get_noise
from stepnet.analysis.notation import plain
from stepnet.analysis.stochastic import StochasticEquation, stochastic_equation
from stepnet.analysis.weak import LARGE_STEPS, SMALL_STEPS, weak_order
from stepnet.errors import UserError

SAMPLES = 100_000
MOMENTS = (1, 2, 3)


class NoiseAnalysis:
    """What theory says of a noise in front of f, and what exact moments and sampling find.

    Weak orders are measured for numbers: those of `noise.examples` where its parameter is left a symbol.
    """

    def __init__(self, noise: str | Noise, samples: int = SAMPLES, **parameters: Parameter) -> None:
        self.noise = get_noise(noise, **parameters)
        self.samples = samples

    @cached_property
    def equation(self) -> StochasticEquation:
        """`dX = drift dt + diffusion dB`."""
        return stochastic_equation(self.noise)

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
        """What one step leaves in the moments of X, for `f = a X`."""
        return [one_step_error(self.noise, m) for m in MOMENTS]

    @cached_property
    def numbers(self) -> list[Noise]:
        """The noise itself where its parameter is a number, otherwise with the numbers of its examples."""
        if not self.noise.mean.free_symbols | self.noise.deviation.free_symbols:
            return [self.noise]
        return [type(self.noise)(**example) for example in self.noise.examples]

    def as_dict(self) -> dict[str, object]:
        """Every fact as a plain value, for JSON."""
        return {
            "noise": self.noise.name,
            "equation": str(self.equation),
            "increments": [str(moment) for moment in self.increments],
            "condition": str(self.condition),
            "holds": self.condition.holds,
            "one_step_errors": {error.name: plain(error.value) for error in self.one_step_errors},
            "weak_orders": {error.name: str(error.order - 1) for error in self.one_step_errors},
        }

    def __str__(self) -> str:
        facts = [
            ("noise", self.noise.about),
            ("equation", str(self.equation)),
            *((f"E {_power('dW', m)}", plain(moment)) for m, moment in zip(MOMENTS, self.increments, strict=True)),
            ("condition", "|E dW| + |E dW^3| + |E dW^2 - dt| <= K dt^2 (appendix B)"),
            ("", str(self.condition)),
            *(
                (error.name, f"off by {plain(error.value)} in a step, for f = a X")
                for error in self.one_step_errors
                if error.order < REQUIRED
            ),
        ]
        lines = [self.noise.heading, *(f"  {label:<12}{text}" for label, text in facts), ""]
        lines.append(_row("weak order", "", [error.name for error in self.one_step_errors]))
        lines.append(_row("", "by symbols", [str(error.order - 1) for error in self.one_step_errors]))
        for noise in self.numbers:
            label = noise.value
            for way, cells in self._measured(noise):
                lines.append(_row(label, way, cells))
                label = ""
        return "\n".join(lines)

    def _measured(self, noise: Noise) -> list[tuple[str, list[str]]]:
        """Slopes on a linear f: exact at small steps, then at large ones, where sampling is to find the same."""

        def sampled(moment: int) -> str:
            try:
                return str(weak_order(noise, moment, samples=self.samples))
            except UserError:  # the error is smaller than what sampling can see
                return "not seen"

        exact = {
            f"1/dt {steps[0]} … {steps[-1]}": [str(weak_order(noise, m, steps=steps)) for m in MOMENTS]
            for steps in (SMALL_STEPS, LARGE_STEPS)
        }
        return [*exact.items(), (f"{self.samples:,} paths", [sampled(m) for m in MOMENTS])]


def analyse_noise(noise: str | Noise, samples: int = SAMPLES, **parameters: Parameter) -> NoiseAnalysis:
    """Every fact of a noise: `analyse_noise("stochastic_depth")` for every p, with `p=0.2` for one."""
    return NoiseAnalysis(noise, samples, **parameters)


def _row(label: str, way: str, cells: list[str]) -> str:
    return (f"  {label:<12}{way:<19}" + "".join(f"{cell:<15}" for cell in cells)).rstrip()


def _power(base: str, m: int) -> str:
    return base if m == 1 else f"{base}^{m}"
