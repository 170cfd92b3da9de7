"""`stepnet inspect` of a trained network: each step as a dynamical system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import nn

from stepnet.nets import NetworkStep, coefficients, outermost
from stepnet.report.dynamics import StepSpectrum, effective_steps, network_steps, roots, verdict
from stepnet.report.opened_networks import OpenedNetwork
from stepnet.report.sketches import NetworkSketch
from stepnet.schemes import by_name

Named = dict[str, float | list[float]]  # coefficients other than k, by name
MOST_ENTRIES = 4  # of a matrix that a row shows
HEADINGS = ("step", "k", "roots", "", "|du|/|u|", "largest dt λ", "growth")


def step_rows(shown: OpenedNetwork, spectra: Sequence[StepSpectrum]) -> list[list[str]]:
    """Return a row for each step: `k`, roots at z = 0, their meaning, effective step, largest eigenvalue, growth."""
    return [
        [step.name, *_coefficient(step, named), f"{moved:.3f}", *_eigenvalue(spectrum)]
        for step, named, moved, spectrum in _measured_steps(shown, spectra)
    ]


def _measured_steps(
    shown: OpenedNetwork, spectra: Sequence[StepSpectrum]
) -> Iterator[tuple[NetworkStep, Named, float, StepSpectrum | None]]:
    """Yield each step with its named coefficients, effective step, and spectrum if it keeps the shape."""
    by_step = {one.step.name: one for one in spectra}
    named: dict[str, Named] = {}
    for name, layers in by_name(coefficients(shown.network)).items():
        for layer, value in layers.items() if name != "k" else ():
            named.setdefault(layer, {})[name] = value
    stages = zip(network_steps(shown.network), effective_steps(shown.network, shown.images), strict=True)
    for step, moved in (pair for stage in stages for pair in zip(*stage, strict=True)):
        yield step, named.get(step.path, {}), moved, by_step.get(step.name)


def unstable_steps(network: nn.Module) -> list[str]:
    """Return a line for each step with a `k` outside its stable interval; of several channels, the worst."""
    lines = []
    for step in (step for stage in network_steps(network) for step in stage if step.ks):
        if not step.scheme.zero_stable_at(k := outermost(step.ks, step.scheme)):
            lines.append(f"k = {k:.3f} of {step.name} is {verdict(step.scheme, k)}")
    return lines


def network_facts(network: NetworkSketch) -> dict[str, object]:
    """Return what is printed of a network as plain values."""
    stages = [
        {
            "scheme": stage.scheme,
            "equation": stage.equation,
            "shape": stage.shape,
            "steps": len(stage.steps),
            "dt": list(stage.dts),
            "k": [step.k for step in stage.steps],
        }
        for stage in network.stages
    ]
    return {"network": network.title, "stages": stages}


def step_facts(shown: OpenedNetwork, spectra: Sequence[StepSpectrum]) -> list[dict[str, object]]:
    """Return the content of `step_rows` as numbers; a complex number is [real, imaginary]."""
    return [
        {
            "step": step.name,
            "k": step.k,
            "coefficients": named,
            "roots": None if step.k is None else [[r.real, r.imag] for r in map(complex, roots(step.scheme, step.k))],
            "zero_stable": None if step.k is None else bool(step.scheme.zero_stable_at(step.k)),
            "relative_update": float(moved),
            "eigenvalue": None if spectrum is None else [float(spectrum.z[0].real), float(spectrum.z[0].imag)],
            "growth": None if spectrum is None or spectrum.growth is None else float(spectrum.growth),
        }
        for step, named, moved, spectrum in _measured_steps(shown, spectra)
    ]


def write_pictures(shown: OpenedNetwork, spectra: Sequence[StepSpectrum], folder: Path) -> list[Path]:
    """Write the schematic, coefficients, trajectories and spectrum of a network as SVG."""
    from stepnet.report.figures import paper_style, write_figure
    from stepnet.report.network_plots import plot_spectrum, plot_trajectory
    from stepnet.report.run_plots import plot_coefficients
    from stepnet.report.schematic import plot_network

    with paper_style(columns=2):
        pictures = {
            "network": plot_network(shown.network, shown.title),
            "trajectory": plot_trajectory(shown.network, *shown.some_of_each()),
            "spectrum": plot_spectrum(shown.network, shown.images[:1], spectra),
        }
        if coefficients(shown.network):
            pictures["k"] = plot_coefficients(shown.network, labels=[shown.title])
        paths = {folder / f"{name}.svg": picture for name, picture in pictures.items()}
        for path, picture in paths.items():
            write_figure(picture, path)
    return list(paths)


def _coefficient(step: NetworkStep, named: Named) -> tuple[str, str, str]:
    if named:
        return ", ".join(f"{name} = {_numbers(value)}" for name, value in named.items()), "", ""
    if step.k is None:
        return "", "", "shape changes" if step.transition else ""
    shown = (f"{root.real:.3f}" if abs(root.imag) < 1e-9 else f"{root:.3f}" for root in roots(step.scheme, step.k))
    return f"{step.k:.3f}", ", ".join(shown), verdict(step.scheme, step.k)


def _numbers(value: float | list[float]) -> str:
    """`0.123`, `(0.9, 0.1)`, or of a large matrix its range."""
    if not isinstance(value, list):
        return f"{value:.3f}"
    if len(value) > MOST_ENTRIES:
        return f"{min(value):.2f} … {max(value):.2f}"
    return f"({', '.join(f'{entry:.2f}' for entry in value)})"


def _eigenvalue(spectrum: StepSpectrum | None) -> tuple[str, str]:
    """Format the largest eigenvalue, `±` for a conjugate pair, and the growth."""
    if spectrum is None:
        return "", ""
    largest = complex(spectrum.z[0])
    pair = "" if abs(largest.imag) < 1e-9 else f" ± {abs(largest.imag):.2f}i"
    return f"{largest.real:.2f}{pair}", "" if spectrum.growth is None else f"{spectrum.growth:.2f}"
