"""What `stepnet scheme` prints of a noise: its equation, its moments, the condition of appendix B, its weak orders."""

from __future__ import annotations

from typing import Any

SAMPLES = 100_000
MOMENTS = (1, 2, 3)


def describe_noise(name: str, p: float | None = None) -> str:
    """The noise's analysis as text. Weak orders are measured for numbers: p = 1/2 and 0.2 unless one is given."""
    from stepnet import analysis
    from stepnet.analysis.noise import increment_moment

    noise = analysis.get_noise(name, **({} if p is None else {"p": p}))
    condition = analysis.weak_condition(noise)
    facts = [
        ("noise", noise.about),
        ("equation", str(analysis.stochastic_equation(noise))),
        *((f"E {_power('dW', m)}", analysis.plain(increment_moment(noise, m))) for m in MOMENTS),
        ("condition", "|E dW| + |E dW^3| + |E dW^2 - dt| <= K dt^2 (appendix B)"),
        ("", str(condition)),
    ]
    lines = [name if p is None else f"{name}, p = {p:g}", *(f"  {label:<12}{text}" for label, text in facts), ""]
    lines.append(f"  weak order, exactly and by {SAMPLES:,} paths (95 %), on a linear f")
    lines.append(_row("", [f"E {_power('X', m)}" for m in MOMENTS]))
    for values in _numbers(noise.name, p):
        measured = analysis.get_noise(name, **values)
        lines.append(_row(", ".join(f"{key} = {value:g}" for key, value in values.items()), _orders(measured)))
    return "\n".join(lines)


def _row(label: str, cells: list[str]) -> str:
    return (f"  {label:<12}" + "".join(f"{cell:<22}" for cell in cells)).rstrip()


def _power(base: str, m: int) -> str:
    return base if m == 1 else f"{base}^{m}"


def _numbers(name: str, p: float | None) -> list[dict[str, Any]]:
    if name == "stochastic_depth":
        return [{"p": value} for value in ((0.5, 0.2) if p is None else (p,))]
    return [{}] if name == "shake_shake" else [{"sigma": 0.5}]


def _orders(noise: Any) -> list[str]:
    from stepnet.analysis import weak_order
    from stepnet.errors import UserError

    texts = []
    for moment in MOMENTS:
        found = f"{weak_order(noise, moment)}"
        try:
            found += f" ({weak_order(noise, moment, samples=SAMPLES)})"
        except UserError:  # the error is smaller than what sampling can see
            found += " (not seen)"
        texts.append(found)
    return texts
