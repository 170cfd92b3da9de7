"""The shares of a step add up, and operators are told apart."""

from __future__ import annotations

import pytest

from stepnet.timing.shares import _kind, matrix_multiply_rate, time_shares


def test_shares_add_up_and_convolutions_lead() -> None:
    rows = list(time_shares("resnet20", size=4, steps=1))
    assert sum(row.value.median for row in rows[:-1]) == pytest.approx(100)
    assert "GFLOP/s" in next(row.note for row in rows if "convolution" in row.what)


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


def test_the_matrix_multiply_has_a_rate() -> None:
    assert matrix_multiply_rate(64, 2) > 0
