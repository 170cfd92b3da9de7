"""The gate of the paper's general form."""

import numpy as np
import pytest
import sympy
import torch

from stepnet.schemes import stochastic_gate


def test_the_paper_s_weights():
    """`dt gate = dt p + sqrt(dt) (eta - p)`; both branches of shake-shake are the same form with eta and 1 - eta."""
    dt, p, eta = sympy.symbols("dt p eta", positive=True)
    assert sympy.expand(dt * stochastic_gate(eta, p, dt) - (dt * p + sympy.sqrt(dt) * (eta - p))) == 0
    half = sympy.Rational(1, 2)
    second = dt / 2 + sympy.sqrt(dt) * (half - eta)
    assert sympy.expand(dt * stochastic_gate(1 - eta, half, dt) - second) == 0


def test_at_dt_1_the_gate_is_eta_itself_to_the_bit():
    assert stochastic_gate(0.0, 0.3) == 0
    assert stochastic_gate(1.0, 0.3) == 1


@pytest.mark.parametrize("dt", [0.25, 2.0])
def test_a_dropped_block_keeps_a_weight_away_from_dt_1(dt):
    assert dt * stochastic_gate(0.0, 0.3, dt) == pytest.approx(0.3 * (dt - dt**0.5))


def test_arrays_and_tensors():
    eta = np.array([0.0, 1.0])
    wanted = 0.5 + (eta - 0.5) / 0.5
    assert np.array_equal(stochastic_gate(eta, 0.5, 0.25), wanted)
    assert torch.equal(stochastic_gate(torch.tensor(eta), 0.5, 0.25), torch.tensor(wanted))
