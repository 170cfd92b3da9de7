"""The rows compare what they say they compare."""

from __future__ import annotations

import pytest
from torch import nn

from stepnet import coefficients
from stepnet.timing import rows
from stepnet.timing.steps import Step


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes two seconds; under LM, gated or reversible it takes three."""

    def step(model: nn.Module, *_: object) -> Step:
        gated = getattr(model, "stochastic", None) is not None
        reversible = any(getattr(module, "memory", None) == "reversible" for module in model.modules())
        return lambda: 3.0 if coefficients(model) or gated or reversible else 2.0  # type: ignore[return-value]

    for name in ("training_step", "forward_pass"):
        monkeypatch.setattr(rows, name, step)


def test_lm_keeps_the_same_few_tensors_at_any_depth() -> None:
    shallow, deep = rows.saved_by_lm([20, 56], size=2)
    assert shallow.value.median == pytest.approx(deep.value.median, abs=0.01)  # but for the coefficients themselves
    assert 0 < shallow.value.median <= 2


@pytest.mark.usefixtures("timed")
def test_the_plain_network_is_the_denominator_and_its_own_twin() -> None:
    for row in (*rows.lm_over_plain([20], 1, size=2), *rows.stochastic_over_plain(1, "resnet20", size=2)):
        assert row.value.median == 1.5 and row.control is not None and row.control.median == 1 and row.target


@pytest.mark.usefixtures("timed")
def test_a_reversible_network_peaks_lower() -> None:
    time, peak = rows.reversible_over_stored(["revnet38"], 1, size=4)
    assert time.value.median == 1.5
    assert peak.value.median < float(peak.note.split()[1])


@pytest.mark.usefixtures("timed")
def test_converted_networks_of_timm() -> None:
    pytest.importorskip("timm")
    step, forward = rows.converted_over_original(["timm/resnet18"], 1, size=2, pixels=32)
    assert step.what.startswith("training step") and forward.what.startswith("forward")
    assert step.value.median == forward.value.median == 1.5


@pytest.mark.usefixtures("timed")
def test_networks_side_by_side_are_timed_against_the_first() -> None:
    found = list(rows.side_by_side(["preact_resnet20", "lm_resnet20", "preact_resnet20:heun"], repeats=3))
    assert [(row.what, row.value.median) for row in found] == [
        ("training step, lm_resnet20 / preact_resnet20", 1.5),
        ("training step, preact_resnet20:heun / preact_resnet20", 1.0),
    ]
    assert all(row.control is not None and row.control.median == 1.0 for row in found)
