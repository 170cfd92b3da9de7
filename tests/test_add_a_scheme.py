"""The worked example of docs/add_a_scheme.md: a scheme of a few lines is solved, analysed, shown and made a network."""

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import sympy
import torch

import stepnet
from stepnet.analysis import empirical_order
from stepnet.cli import main
from stepnet.schemes import RungeKutta, Tableau

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "add_a_scheme.md"


@pytest.fixture
def example(registries: None) -> dict[str, object]:
    """The names that the page's code defines, with the registry as it was before afterwards."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_the_scheme_is_solved_analysed_and_shown(example, capsys):
    assert np.isfinite(example["trajectory"].u).all()
    assert empirical_order("nesterov") == pytest.approx(1, abs=0.15)
    assert stepnet.analysis.zero_stable("nesterov") == sympy.Interval.Lopen(-1, 1)
    assert main(["scheme", "nag", "--k", "-0.5"]) == 0
    shown = capsys.readouterr().out
    assert "f_1 = f(3/2 u_n - 1/2 u_{n-1})" in shown
    assert "(1/2) u' = f" in shown
    assert main(["scheme"]) == 0
    assert "nesterov" in capsys.readouterr().out
    assert main(["scheme", "nesterov"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_the_scheme_makes_a_network_that_learns_its_k(example):
    network = example["network"]
    network(torch.randn(2, 3, 32, 32)).square().sum().backward()
    gradients = [p.grad for name, p in network.named_parameters() if name.endswith(".k")]
    assert gradients and all(gradient.all() for gradient in gradients)


TEN_LINES = """
from stepnet.schemes import Scheme, combine, register_scheme

@register_scheme("ralston")
class Ralston(Scheme):
    reference, order, stages = "Ralston 1962", 2, 2

    def increment(self, past, dt, k):
        third, point = dt / 3, past[0]
        second = point.rhs(combine((1, point.u), (2 * third, point.f)), 2 / 3, 1)
        return combine((dt / 4, point.f), (3 * dt / 4, second))
"""


@pytest.mark.usefixtures("example")  # for a registry of its own
def test_a_scheme_of_ten_lines_is_known_everywhere(capsys):
    assert sum(line.strip() != "" for line in TEN_LINES.splitlines()) <= 10
    exec(TEN_LINES, {})
    tableau = Tableau(((), (Fraction(2, 3),)), (Fraction(1, 4), Fraction(3, 4)))
    problem = (lambda t, u: np.cos(t * u), np.array([0.3, 1.0]), (0.0, 1.0), 10)
    wanted = stepnet.solve(*problem, RungeKutta(tableau)).u
    assert np.allclose(stepnet.solve(*problem, "ralston").u, wanted, rtol=0, atol=1e-14)
    assert stepnet.analysis.order("ralston") == 2 and stepnet.analysis.stability_interval("ralston") == 2
    assert main(["scheme", "ralston"]) == 0
    shown = capsys.readouterr().out
    assert "f_2 = f(u_n + 2 dt/3 f_1)\n" in shown and "u_{n+1} = u_n + dt/4 f_1 + 3 dt/4 f_2\n" in shown
    x = torch.zeros(2, 3, 32, 32)
    assert stepnet.create_model("resnet20", scheme="ralston")(x).shape == (2, 10)
    converted = stepnet.convert(torch.nn.Sequential(Decay(), Decay()), "ralston", example=torch.ones(1, 4))
    factor = 1 - 1 / 2 + 1 / 8  # one step of length 1 for u' = -u/2
    torch.testing.assert_close(converted(torch.ones(1, 4)), torch.full((1, 4), factor**2))


class Decay(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor(-0.5))

    def forward(self, u):
        return u + self.rate * u


def test_contributing_links_to_every_example():
    links = re.findall(r"\]\((docs/[a-z_]+\.md)\)", (ROOT / "CONTRIBUTING.md").read_text())
    assert set(links) == {f"docs/{page.name}" for page in (ROOT / "docs").glob("add_a_*.md")}
