"""Coefficients that stay in their interval, whatever the optimiser does."""

from __future__ import annotations

import math

import pytest
import sympy
import torch

import stepnet
from stepnet import UserError, create_model
from stepnet.nets.bounds import Bound, initial_k
from stepnet.nets.stage import Stage
from stepnet.schemes import get_scheme


def ks(model: torch.nn.Module) -> torch.Tensor:
    return torch.tensor(list(stepnet.coefficients(model).values())).flatten()


@pytest.mark.parametrize("bound", [Bound(-1, 1), Bound(-0.5, 0.25), Bound(-3, 7)])
def test_the_interval_is_open_and_the_map_is_its_own_inverse(bound: Bound) -> None:
    far = bound.k(torch.tensor([-1e6, -20.0, 0.0, 20.0, 1e6]))
    assert far.min() > bound.low and far.max() < bound.high and far[2] == bound.middle
    k = torch.linspace(bound.low, bound.high, 41, dtype=torch.float64)[1:-1]
    torch.testing.assert_close(bound.k(bound.free(k)), k, rtol=1e-13, atol=1e-13)


def test_the_stated_interval_is_the_one_that_analysis_finds() -> None:
    low, high = get_scheme("lm").stable_k
    assert stepnet.analysis.zero_stable("lm") == sympy.Interval.Lopen(int(low), int(high))


def test_the_initial_law_holds() -> None:
    torch.manual_seed(0)
    free = create_model("lm_resnet20", k_bound="stable")
    torch.manual_seed(0)
    plain = create_model("lm_resnet20")
    torch.testing.assert_close(ks(free), ks(plain), rtol=0, atol=2e-8)
    torch.manual_seed(0)
    drawn = Bound(-1, 1).k(Bound(-1, 1).free(initial_k(get_scheme("lm"), (4000,), None, Bound(-1, 1))))
    assert -0.1 <= drawn.min() < -0.0999 and -1e-4 < drawn.max() <= 0
    assert drawn.mean() == pytest.approx(-0.05, abs=1e-3) and drawn.var() == pytest.approx(0.01 / 12, rel=0.05)


def test_zero_is_euler_to_the_bit_and_other_parameters_keep_their_names() -> None:
    torch.manual_seed(0)
    bounded = create_model("lm_resnet20", k=0.0, k_bound="stable").eval()
    euler = create_model("preact_resnet20").eval()
    missing, unexpected = euler.load_state_dict(bounded.state_dict(), strict=False)
    assert missing == [] and unexpected == [f"stages.{n}.k_free" for n in range(3)]
    assert set(unexpected) <= bounded.no_weight_decay()
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(bounded(x), euler(x))


def drive(model: torch.nn.Module) -> tuple[list[float], torch.Tensor]:
    """A few steps with a loss that a huge learning rate on k would follow out of any interval."""
    torch.manual_seed(1)
    x, y = torch.randn(16, 3, 16, 16), torch.randint(0, 10, (16,))
    own = [p for name, p in model.named_parameters() if ".k" in name]
    rest = [p for name, p in model.named_parameters() if ".k" not in name]
    optimiser = torch.optim.SGD([{"params": own, "lr": 60.0}, {"params": rest, "lr": 0.05}], momentum=0.9)
    losses = []
    for _ in range(6):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses, ks(model)


def test_a_rate_that_drives_k_out_leaves_a_bounded_one_inside_and_the_loss_falls() -> None:
    torch.manual_seed(0)
    losses, bounded = drive(create_model("lm_resnet20", k_bound="stable"))
    assert bounded.abs().max() < 1 and losses[-1] < losses[0]
    torch.manual_seed(0)
    _, free = drive(create_model("lm_resnet20"))
    assert not free.abs().max() < 1


def test_per_channel_and_compiled_gradients() -> None:
    model = create_model("lm_resnet20", k_per_channel=True, k_bound=(-0.5, 0.5))
    model(torch.randn(2, 3, 16, 16)).square().sum().backward()
    for stage in model.stages:
        assert isinstance(stage, Stage) and stage.k_free.grad is not None and stage.k_free.grad.abs().max() > 0
    stage, x = model.stages[0].double(), torch.randn(2, 16, 8, 8, dtype=torch.float64)
    compiled = torch.compile(stage, backend="aot_eager", fullgraph=True)
    found, expected = (torch.autograd.grad(f(x).square().sum(), stage.k_free)[0] for f in (compiled, stage))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("scheme", "k", "bound", "message"),
    [
        ("lm", None, (1, -1), "k_bound = .*lower one first"),
        ("lm", None, "zero", "k_bound = 'zero'.*'stable' or a tuple"),
        ("lm", None, (0.0, math.inf), "a finite number"),
        ("lm", None, 3, "k_bound = 3: expected 'stable' or a tuple"),
        ("lm", -2.0, "stable", "k = -2 does not lie in k_bound, -1 < k < 1"),
        ("lm", None, (-0.05, 0.5), r"initial law U\[-0.1, 0\] does not lie in k_bound"),
        ("heun", None, "stable", "'heun' learns no coefficients"),
    ],
)
def test_mistakes_in_one_line(scheme: str, k: float | None, bound: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        create_model("resnet20", scheme=scheme, k_bound=bound, **({} if k is None else {"k": k}))


def test_a_k_far_outside_is_told() -> None:
    with pytest.warns(UserWarning, match=r"k = 50 is outside \(-1, 1\], where lm is zero-stable: .* 50\^n"):
        model = create_model("lm_resnet20", k=50.0)
    assert set(stepnet.coefficients(model).values()) == {50.0}
    with pytest.warns(UserWarning, match=r"k = -1 is outside \(-1, 1\].* states grow like n with depth"):
        create_model("lm_resnet20", k=-1.0)
