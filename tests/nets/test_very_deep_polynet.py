"""Very Deep PolyNet: its composition, and its units as steps."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from stepnet.errors import UserError
from stepnet.nets import Stage, create_model
from stepnet.nets.blocks import Sum
from stepnet.nets.polynet import INCEPTION_B, Inception, VeryDeepPolyNet, inception_unit


def stages(part: nn.Module) -> list[Stage]:
    return [module for module in part.children() if isinstance(module, Stage)]


def test_composition_and_step_sizes() -> None:
    with torch.device("meta"):
        model = VeryDeepPolyNet()
    schemes = [[stage.scheme.name for stage in stages(part)] for part in (model.stage_a, model.stage_b, model.stage_c)]
    assert schemes == [["euler"] * 10, ["neumann3", "euler"] * 10, ["neumann3", "euler"] * 5]
    steps = [stage.dts[0] for part in (model.stage_a, model.stage_b, model.stage_c) for stage in stages(part)]
    assert steps[0] == 1 and steps[-1] == pytest.approx(0.7)
    assert len({round(a - b, 9) for a, b in pairwise(steps)}) == 1  # falls linearly


def test_parameters_are_those_of_the_released_weights() -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in VeryDeepPolyNet().parameters()) == 95_366_600


def test_units_are_steps() -> None:
    torch.manual_seed(0)
    u = torch.rand(2, 16, 5, 5, dtype=torch.float64)
    poly, two_way = (inception_unit(16, INCEPTION_B, scheme, 0.9).double().eval() for scheme in ("neumann3", "euler"))
    (f,) = poly.blocks
    first = 0.9 * f(u, 0)
    second = 0.9 * f(first, 1)
    torch.testing.assert_close(poly(u), (u + first + second + 0.9 * f(second, 2)).relu(), rtol=1e-12, atol=1e-12)
    (both,) = two_way.blocks
    assert isinstance(both, Sum)
    f, g = both.fs
    torch.testing.assert_close(two_way(u), (u + 0.9 * (f(u) + g(u))).relu(), rtol=1e-12, atol=1e-12)


def test_inception_starts_with_a_relu_and_keeps_statistics_for_each_evaluation() -> None:
    f = Inception(16, INCEPTION_B, evaluations=3).double()
    u = torch.randn(2, 16, 5, 5, dtype=torch.float64)
    f(u, 2)
    for layer in (f.paths[0][0].norms, [close.norms[0] for close in f.close.fs]):
        assert [bool(norm.running_mean.any()) for norm in layer] == [False, False, True]
    f.eval()
    assert torch.equal(f(u), f(u.relu()))


def test_bad_options() -> None:
    with pytest.raises(UserError, match="b = 0: expected 1 or more"):
        create_model("very_deep_polynet", b=0)
    with torch.device("meta"):
        model = VeryDeepPolyNet(a=1, b=1, c=1)
    with pytest.raises(UserError, match="at least 32"):
        model(torch.zeros(1, 3, 31, 40))
