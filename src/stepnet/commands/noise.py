"""What `stepnet scheme` prints of a noise: its equation, its moments, the condition of appendix B, its weak orders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepnet.analysis.noise import Noise

SAMPLES = 100_000
MOMENTS = (1, 2, 3)


def describe_noise(name: str, p: float | None = None) -> str:
    """The noise's analysis as text. Weak orders are measured for numbers: p = 1/2 and 0.2 unless one is given."""
    from stepnet import analysis
    from stepnet.analysis.condition import REQUIRED, increment_moment

    noise = analysis.get_noise(name, **({} if p is None else {"p": p}))
    steps = [analysis.one_step_error(noise, m) for m in MOMENTS]
    facts = [
        ("noise", noise.about),
        ("equation", str(analysis.stochastic_equation(noise))),
        *((f"E {_power('dW', m)}", analysis.plain(increment_moment(noise, m))) for m in MOMENTS),
        ("condition", "|E dW| + |E dW^3| + |E dW^2 - dt| <= K dt^2 (appendix B)"),
        ("", str(analysis.weak_condition(noise))),
        *(
            (error.name, f"off by {analysis.plain(error.value)} in a step, for f = a X")
            for error in steps
            if error.order < REQUIRED
        ),
    ]
    lines = [name if p is None else f"{name}, p = {p:g}", *(f"  {label:<12}{text}" for label, text in facts), ""]
    lines.append(_row("weak order", "", [error.name for error in steps]))
    lines.append(_row("", "by symbols", [str(error.order - 1) for error in steps]))
    for values in _numbers(name, p):
        label = ", ".join(f"{key} = {value:g}" for key, value in values.items())
        for way, cells in _measured(analysis.get_noise(name, **values)):
            lines.append(_row(label, way, cells))
            label = ""
    return "\n".join(lines)


def draw_noise(name: str, p: float | None, path: Path) -> None:
    """The weak errors of the noise, with the numbers of the text, as a figure."""
    from stepnet.analysis import get_noise
    from stepnet.report.noise import draw_noises

    draw_noises([get_noise(name, **values) for values in _numbers(name, p)], path, SAMPLES)


def _row(label: str, way: str, cells: list[str]) -> str:
    return (f"  {label:<12}{way:<19}" + "".join(f"{cell:<15}" for cell in cells)).rstrip()


def _power(base: str, m: int) -> str:
    return base if m == 1 else f"{base}^{m}"


def _numbers(name: str, p: float | None) -> list[dict[str, Any]]:
    if name == "stochastic_depth":
        return [{"p": value} for value in ((0.5, 0.2) if p is None else (p,))]
    return [{}] if name == "shake_shake" else [{"sigma": 0.5}]


def _measured(noise: Noise) -> list[tuple[str, list[str]]]:
    """Slopes on a linear f: exact at small steps, then at large ones, where sampling is to find the same."""
    from stepnet.analysis import weak_order
    from stepnet.analysis.weak import LARGE_STEPS, SMALL_STEPS
    from stepnet.errors import UserError

    def sampled(moment: int) -> str:
        try:
            return str(weak_order(noise, moment, samples=SAMPLES))
        except UserError:  # the error is smaller than what sampling can see
            return "not seen"

    exact = {
        f"1/dt {steps[0]} … {steps[-1]}": [str(weak_order(noise, m, steps=steps)) for m in MOMENTS]
        for steps in (SMALL_STEPS, LARGE_STEPS)
    }
    return [*exact.items(), (f"{SAMPLES:,} paths", [sampled(m) for m in MOMENTS])]
