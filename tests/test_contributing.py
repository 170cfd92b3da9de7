"""The worked example of CONTRIBUTING.md: a scheme of a few lines is solved, analysed, shown and made a network."""

import re
from pathlib import Path

import numpy as np
import pytest
import sympy
import torch

import stepnet
from stepnet.analysis import empirical_order
from stepnet.cli import main
from stepnet.schemes import registry

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The names that the page's code defines, with the registry as it was before afterwards."""
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    monkeypatch.setattr(registry, "_aliases", dict(registry._aliases))
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
    network(torch.zeros(2, 3, 32, 32)).sum().backward()
    values = stepnet.coefficients(network)
    assert len(values) > 0


def test_the_page_links_to_the_other_examples():
    links = re.findall(r"\]\((docs/[a-z_]+\.md)\)", PAGE.read_text())
    assert links == ["docs/add_a_network.md", "docs/add_a_data_set.md"]
    assert all((PAGE.parent / link).is_file() for link in links)
