"""The rows compare what they say they compare."""

from __future__ import annotations

import pytest

from stepnet.timing import rows


def test_lm_keeps_the_same_few_tensors_at_any_depth() -> None:
    shallow, deep = rows.saved_by_lm([20, 56], size=2)
    assert shallow.value.median == pytest.approx(deep.value.median, abs=0.01)  # but for the coefficients themselves
    assert 0 < shallow.value.median <= 2


def test_every_row_of_the_small_set_has_its_null_twin() -> None:
    for row in (*rows.lm_over_plain([20], 1, size=2), *rows.stochastic_over_plain(1, "resnet20", size=2)):
        assert row.value.median > 0 and row.null is not None and row.reach


def test_a_reversible_network_peaks_lower() -> None:
    _, peak = rows.reversible_over_stored(["revnet38"], 1, size=4)
    assert peak.value.median < float(peak.note.split()[1])


def test_converted_networks_of_timm() -> None:
    pytest.importorskip("timm")
    step, forward = rows.converted_over_original(["timm/resnet18"], 1, size=2, pixels=32)
    assert step.what.startswith("training step") and forward.what.startswith("forward")
