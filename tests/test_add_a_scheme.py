"""The worked example of docs/add_a_scheme.md: a scheme of a few lines is solved, analysed, shown and made a network."""

import re
from pathlib import Path

import numpy as np
import pytest
import sympy
import torch

import stepnet
from stepnet.analysis import convergence
from stepnet.cli import main

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
    assert convergence("nag").slope == pytest.approx(1, abs=0.15)
    assert stepnet.analysis.zero_stable("nag") == sympy.Interval.Lopen(-1, 1)
    assert main(["scheme", "nag", "--k", "-0.5"]) == 0
    shown = capsys.readouterr().out
    assert "f_1 = f(3/2 u_n - 1/2 u_{n-1})" in shown
    assert "(1/2) u' = f" in shown
    assert main(["scheme"]) == 0
    assert "nag" in capsys.readouterr().out
    assert main(["scheme", "nag"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_the_scheme_makes_a_network_that_learns_its_k(example):
    network = example["network"]
    network(torch.randn(2, 3, 32, 32)).square().sum().backward()
    gradients = [p.grad for name, p in network.named_parameters() if name.endswith(".k")]
    assert gradients and all(gradient.all() for gradient in gradients)


def test_contributing_links_to_every_example():
    links = re.findall(r"\]\((docs/[a-z_]+\.md)\)", (ROOT / "CONTRIBUTING.md").read_text())
    assert set(links) == {f"docs/{page.name}" for page in (ROOT / "docs").glob("add_a_*.md")}
