"""Steps as straight-line code: what the scheme itself computes, to the bit, with nothing asked of it again."""

from __future__ import annotations

import copy
import pickle
import sys
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepnet
from stepnet.errors import UserError
from stepnet.nets.march import OWNED, RecordedStep
from stepnet.nets.stage import Stage
from stepnet.nets.transitions import Coupling
from stepnet.schemes import Difference, Scheme, get_scheme
from stepnet.schemes.arithmetic import parts_of

ALL = {name: get_scheme(name) for name in stepnet.list_schemes()}
SCHEMES = [
    *(name for name, s in ALL.items() if s.makes_network and not s.learned),
    "lm+heun",
    "lm+coupled",
    "lm+strang",
]


class Slope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        return torch.tanh(self.linear(u))


def make_stage(name: str, depth: int = 5, dt: float = 0.3) -> Stage:
    torch.manual_seed(0)
    scheme = get_scheme(name)
    blocks: list[nn.Module] = [Slope() for _ in range(depth)]
    if len(scheme.functions) > 1:
        blocks = [Coupling(Slope(), Slope()) for _ in range(depth)]
    return Stage(scheme, blocks, dt=dt, initial_k=-0.7 if scheme.trainable else None)


def state(stage: Stage) -> Any:
    u = torch.randn(2, 3, generator=torch.Generator().manual_seed(1))
    return (u, u.flip(-1)) if stage.scheme.equation.partitioned else u


@pytest.mark.parametrize("name", SCHEMES)
def test_recorded_steps_give_the_bits_of_the_scheme(name: str) -> None:
    """A gate of 1 for each step lets the scheme itself take the steps; a stage alone runs its march as one function."""
    stage = make_stage(name)
    recorded, by_scheme = (list(stage.states(state(stage), gates=gates)) for gates in (None, [1] * 5))
    for ours, theirs in zip((*recorded, stage(state(stage))), (*by_scheme, by_scheme[-1]), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(parts_of(ours), parts_of(theirs), strict=True))


@pytest.mark.parametrize("name", ["lm", "rk4", "ab3", "coupled", "strang"])
def test_nothing_is_asked_of_the_scheme_in_a_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = make_stage(name)
    expected = stage(state(stage))

    def asked(*args: object) -> None:
        raise AssertionError("the scheme was asked")

    for kind in Scheme.__subclasses__():
        monkeypatch.setattr(kind, "increment", asked)
    monkeypatch.setattr(type(stage.scheme), "increment", asked)
    monkeypatch.setattr("stepnet.schemes.arithmetic.is_number", asked)
    for ours, theirs in zip(parts_of(stage(state(stage))), parts_of(expected), strict=True):
        assert torch.equal(ours, theirs)


def test_an_lm_step_makes_two_calls_of_ours() -> None:
    """Its mean, and the block's `forward`."""
    stage = make_stage("lm", depth=11)
    calls: Counter[str] = Counter()

    def count(frame: Any, event: str, argument: object) -> None:
        if event == "call" and ("stepnet" in frame.f_code.co_filename or "eval_with_key" in frame.f_code.co_filename):
            calls[frame.f_code.co_name] += 1

    u = state(stage)
    with torch.inference_mode():
        sys.setprofile(count)
        try:
            stage(u)
        finally:
            sys.setprofile(None)
    assert calls["mix_tensors"] == 10 and calls["increment"] == calls["is_number"] == 0
    assert sum(calls.values()) < 11 * 2 + 12, calls


def test_a_step_of_another_type_than_its_k_is_computed() -> None:
    stage = make_stage("lm")
    u = state(stage)
    single = stage(u)
    stage.blocks.to(torch.bfloat16)
    half = stage(u.bfloat16())
    assert half.dtype == torch.bfloat16 and stage.k is not None and stage.k.dtype == torch.float32
    torch.testing.assert_close(half.float(), single, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", ["lm", "ab2", "coupled", "lie_trotter"])
def test_copied_and_pickled(name: str) -> None:
    stage = make_stage(name)
    expected = stage(state(stage))
    for twin in (copy.deepcopy(stage), pickle.loads(pickle.dumps(stage))):
        assert twin.march.steps[1].run is not None
        for ours, theirs in zip(parts_of(twin(state(stage))), parts_of(expected), strict=True):
            assert torch.equal(ours, theirs)


def test_a_block_that_is_kept_whole() -> None:
    """`B(u) + k (u_{n-1} - u_n)`, which is `B(u)` to the bit at k = 0 for a block that gives its sum only."""
    step = RecordedStep(get_scheme("lm"), 2, 1, OWNED, whole=True)
    u, older, k = torch.randn(3), torch.randn(3), torch.tensor([-0.4])

    def block(v: Tensor, i: int) -> Difference:
        return Difference(v + torch.tanh(v), v)

    torch.testing.assert_close(step.run(block, (u, older), (), k), u + torch.tanh(u) - 0.4 * (older - u))
    assert torch.equal(step.run(block, (u, older), (), torch.zeros(1)), u + torch.tanh(u))


def test_a_whole_block_says_so_in_its_class() -> None:
    class Whole(Slope):
        def forward(self, u: Tensor, i: int = 0) -> Difference:  # type: ignore[override]
            return Difference(u + super().forward(u), u)

    with pytest.raises(UserError, match="returned a Difference: set `whole = True`"):
        Stage(get_scheme("euler"), [Whole()])(torch.randn(2, 3))
    Whole.whole = True  # type: ignore[attr-defined]
    f, block, u = Slope(), Whole(), torch.randn(2, 3)
    middle = u + f(u)
    assert torch.equal(Stage(get_scheme("euler"), [f, block])(u), middle + torch.tanh(block.linear(middle)))
