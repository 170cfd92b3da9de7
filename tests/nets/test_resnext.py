"""ResNeXt's grouped bottlenecks, LM-ResNeXt's projected past."""

from __future__ import annotations

import pytest
import torch

from stepnet.errors import UserError
from stepnet.nets import Stage
from stepnet.nets.resnext import resnext


def parameters(**options: object) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in resnext((3, 3, 3), 8, 64, pre_activation=True, **options).parameters())


def test_groups_widen_with_the_stages() -> None:
    with torch.device("meta"):
        model = resnext((3, 3, 3), 16, 64)
    middles = [stage.blocks[0].convs[1] for stage in model.stages]
    assert [c.groups for c in middles] == [16, 16, 16]
    assert [c.in_channels // c.groups for c in middles] == [64, 128, 256]


def test_lm_adds_the_projected_pasts_and_one_k_for_each_step_with_a_past() -> None:
    """Two 1x1 convolutions, 0.66M; 9 steps of which only the first two of the first stage have no past."""
    projections = 256 * 512 + 512 * 1024
    ks = 2 + 3 + 3  # the first stage's second step takes the projected input as its past
    assert parameters(scheme="lm") - parameters() == projections + ks


def test_past_state_crosses_the_stage_change() -> None:
    model = resnext((2, 2, 2), 2, 4, pre_activation=True, scheme="lm").double().eval()
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    first, second, _ = model.stages
    assert isinstance(first, Stage) and isinstance(second, Stage) and second.transition is not None
    assert first.transition is not None and first.transition.project_past is None  # there is no stage before it
    *_, before, last = first.states(model.stem(x))
    step = second.transition
    assert step.project_past is not None and second.k is not None
    k, carried = second.k[0], step.shortcut(step.block.norms[0](last).relu())
    expected = (1 - k) * carried + k * step.project_past(before) + step.block(last)
    states = list(second.states(last, before))
    torch.testing.assert_close(states[1], expected, rtol=1e-12, atol=1e-12)
    *_, before, last = states
    third = model.stages[2](last, before)
    torch.testing.assert_close(model.forward_features(x), model.norm(third).relu(), rtol=1e-12, atol=1e-12)


def test_bad_options() -> None:
    with pytest.raises(UserError, match=r"blocks\[1\] = 0: expected 1 or more"):
        resnext((3, 0, 3))
    with pytest.raises(UserError, match="cardinality = 0"):
        resnext((3, 3, 3), 0)
