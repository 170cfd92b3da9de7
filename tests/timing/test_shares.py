"""The shares of a step add up, and operators are told apart."""

from __future__ import annotations

import pytest
import torch

from stepnet.timing import shares
from stepnet.timing.shares import _kind, matrix_multiply_rate, time_shares


def test_shares_are_of_a_step_and_the_input_comes_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "_seconds_by_kind", lambda step, steps: {"other": 1.0, "convolution": 3.0})
    monkeypatch.setattr(shares, "_input_seconds", lambda size: 2.0)
    monkeypatch.setattr(shares, "_rate", lambda step, seconds: 30 / seconds)
    monkeypatch.setattr(shares, "matrix_multiply_rate", lambda: 20.0)
    rows = list(time_shares("resnet20", size=4))
    assert [(row.what.removeprefix("resnet20: "), row.value.median) for row in rows] == [
        ("convolution", 75), ("other", 25), ("input", 50),
    ]  # fmt: skip
    assert rows[0].note == "10 GFLOP/s, 0.50 of the 20 of a matrix multiply"


def test_the_seconds_of_a_step_are_those_of_its_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, images, weights = [0.0], torch.randn(4, 16, 32, 32), torch.randn(16, 16, 3, 3)

    def step() -> None:
        torch.conv2d(images, weights)
        now[0] += 2

    monkeypatch.setattr(shares, "steady_clock", lambda: lambda: now[0])
    spent = shares._seconds_by_kind(step, 3)
    assert sum(spent.values()) == pytest.approx(2) and spent["convolution"] > 1


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::mkldnn_convolution", "convolution"),
        ("aten::native_batch_norm", "normalisation"),
        ("autograd::engine::evaluate_function: LerpBackward1", "the scheme"),
        ("aten::_foreach_add_", "optimiser"),
        ("aten::threshold_backward", "activation, pooling"),
        ("aten::zeros_like", "other"),
    ],
)
def test_kinds_of_operators(operator: str, kind: str) -> None:
    assert _kind(operator) == kind


def test_rates_count_an_addition_for_each_multiplication(monkeypatch: pytest.MonkeyPatch) -> None:
    a = torch.ones(100, 100)
    assert shares._rate(lambda: a @ a, 0.5) == pytest.approx(2 * 100**3 / 0.5 / 1e9)
    monkeypatch.setattr(shares, "interleave", lambda variants, repeats: {"product": [2.0, 0.5]})
    assert matrix_multiply_rate(100) == pytest.approx(2 * 100**3 / 0.5 / 1e9)
