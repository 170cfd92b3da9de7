"""Every family with every scheme: it marches as its plan says and trains all it has, or is refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.nets import Network, Stage
from stepnet.nets.fractalnet import cifar_fractalnet
from stepnet.nets.polynet import cifar_polynet
from stepnet.nets.resnet import cifar_bottleneck_resnet, cifar_resnet
from stepnet.nets.resnext import cifar_resnext
from stepnet.nets.revnet import CIFAR, RevNet
from stepnet.nets.shakeshake import cifar_shakeshake
from stepnet.nets.stage import Coupling
from stepnet.schemes import Difference
from stepnet.schemes.plan import BEFORE_INPUT, INPUT, Quantity, Terms, dt, k

FAMILIES: dict[str, Callable[[str], Network]] = {
    "resnet": lambda scheme: cifar_resnet(20, False, scheme),
    "preact": lambda scheme: cifar_bottleneck_resnet(20, scheme),
    "resnext": lambda scheme: cifar_resnext(20, 2, 4, True, scheme),
    "poly2": lambda scheme: cifar_polynet(20, "poly2", scheme),
    "mpoly2": lambda scheme: cifar_polynet(20, "mpoly2", scheme),
    "two_way": lambda scheme: cifar_polynet(20, "two_way", scheme),
    "shakeshake": lambda scheme: cifar_shakeshake(20, 4, scheme=scheme),
    "fractalnet": lambda scheme: cifar_fractalnet(10, (4, 8, 8, 8, 8), scheme=scheme),
    "revnet": lambda scheme: RevNet(CIFAR[38], scheme),
}
SCHEMES = [
    "euler", "heun", "rk4", "neumann2", "picard2", "fractal2", "full_fractal2", "ab2", "ab3", "leapfrog", "midpoint2",
    "lm", "lm+heun", "lm+neumann2", "lm+fractal3", "coupled", "lm+coupled", "backward_euler",
]  # fmt: skip
PAIRS = {"coupled", "lm+coupled"}
TAKES = {  # the families that take some schemes only; all others take what makes a network of single states
    "poly2": {"neumann2", "lm", "lm+neumann2"},
    "mpoly2": {"neumann2", "lm", "lm+neumann2"},
    "fractalnet": {"fractal2", "full_fractal2"},
    "revnet": {*PAIRS, "lm"},
}
CASES = [(family, scheme) for family in FAMILIES for scheme in SCHEMES]


def takes(family: str, scheme: str) -> bool:
    return scheme in TAKES.get(family, {*SCHEMES} - PAIRS - {"backward_euler"})


def by_plan(stage: Stage, x: Any, past: Any = None) -> Any:
    """The last state of a stage: its plan's sums and evaluations, one after another."""
    pair = stage.scheme.equation.partitioned
    parts = "XY" if pair else "u"
    known: dict[Quantity, Tensor] = {}

    def put(n: int, state: Any) -> None:
        known.update(zip((Quantity(part, n) for part in parts), state if pair else (state,), strict=True))

    def total(terms: Terms, own: Tensor | None) -> Tensor:
        result: Any = 0
        for quantity, weight in terms:
            number = weight.subs(dt, stage.dt)
            if number.has(k):
                slope, rest = number.diff(k), number.subs(k, 0)
                factor = float(rest) + float(slope) * own
            else:
                factor = float(number)
            result = result + factor * known[quantity]
        return result

    put(INPUT, x)
    put(0, x if stage.transition is None else stage.transition.point(x).u)
    if stage.plan.entry == "with past":
        put(BEFORE_INPUT, stage.transition.project_past(past))
    ks = iter(() if stage.coefficients is None else stage.coefficients)
    for n, (step, block) in enumerate(zip(stage.plan.steps, stage.steps, strict=True)):
        own = next(ks) if step.owns_k else None
        for evaluation in step.evaluations:
            f: nn.Module = getattr(block, evaluation.result.name) if isinstance(block, Coupling) else block
            value = f(total(evaluation.argument, own), evaluation.result.i)
            known[evaluation.result] = value.value if isinstance(value, Difference) else value
        new = tuple(total(terms, own) for terms in step.new)
        new = new if stage.after is None else tuple(map(stage.after, new))
        put(n + 1, new if pair else new[0])
    assert list(ks) == []
    return new if pair else new[0]


@pytest.mark.parametrize(("family", "scheme"), CASES, ids=[f"{family}-{scheme}" for family, scheme in CASES])
def test_marches_as_planned_and_trains_all_it_has_or_is_refused(family: str, scheme: str) -> None:
    torch.manual_seed(0)
    if not takes(family, scheme):
        with pytest.raises(UserError) as refused:
            FAMILIES[family](scheme)
        assert "\n" not in str(refused.value) and scheme.removeprefix("lm+") in str(refused.value)
        return
    model = FAMILIES[family](scheme).double()
    calls: list[tuple[Stage, tuple[Any, ...], Any]] = []
    for stage in model.stages:
        stage.register_forward_hook(lambda stage, args, output: calls.append((stage, args, output)))
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    model(x).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    calls.clear()
    with torch.no_grad():
        model.eval()(x)
        assert len(calls) == len(model.stages)
        for stage, args, output in calls:
            assert stage.scheme is model.scheme
            torch.testing.assert_close(by_plan(stage, *args[:2]), output, rtol=1e-11, atol=1e-11)


def test_a_family_that_is_its_increment_keeps_it_under_lm() -> None:
    assert FAMILIES["poly2"]("lm").scheme.name == "lm+neumann2"
    assert FAMILIES["revnet"]("lm").scheme.name == "lm+coupled"
    assert FAMILIES["resnet"]("lm").scheme.name == "lm"


@pytest.mark.parametrize(("family", "scheme"), [("poly2", "lm"), ("revnet", "lm")])
def test_lm_over_another_method_is_one_graph(family: str, scheme: str) -> None:
    torch.manual_seed(0)
    stage = FAMILIES[family](scheme).stages[0]
    u = torch.randn(2, 16, 8, 8)
    x = (u, u.flip(0)) if family == "revnet" else u
    compiled = torch.compile(stage.eval(), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), stage(x), rtol=1e-5, atol=1e-5)
