"""A stage: blocks marched by a scheme, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.nets.blocks import PostActivation, PreActivation, Subsample, basic, conv
from stepnet.nets.march import Memory, right_hand_side
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.nets.stage import Stage, check_makes_network
from stepnet.nets.transitions import Transition
from stepnet.schemes import LinearMultistep, Point, Scheme, advance, combine, get_scheme
from stepnet.schemes.march_plan import plan


def blocks(scheme: str, count: int) -> list[nn.Module]:
    return [PreActivation(basic(4, 4), n) for n in plan(get_scheme(scheme), count).evaluations]


def stage(scheme: str, count: int = 3) -> Stage:
    return Stage(get_scheme(scheme), blocks(scheme, count)).double()


def state() -> Tensor:
    return torch.randn(3, 4, 8, 8, dtype=torch.float64)


Formula = Callable[[nn.Module, Sequence[Tensor], Sequence[Tensor]], Tensor]


def heun(f: nn.Module, us: Sequence[Tensor], fs: Sequence[Tensor]) -> Tensor:
    return us[0] + (fs[0] + f(us[0] + fs[0])) / 2


def rk4(f: nn.Module, us: Sequence[Tensor], fs: Sequence[Tensor]) -> Tensor:
    second = f(us[0] + fs[0] / 2)
    third = f(us[0] + second / 2)
    return us[0] + (fs[0] + 2 * second + 2 * third + f(us[0] + third)) / 6


# The formulas of the textbooks at dt = 1: `f` is the step's block, `us` and `fs` the states and slopes, newest first.
TEXTBOOK: dict[str, Formula] = {
    "heun": heun,
    "fractal2": heun,
    "rk4": rk4,
    "neumann2": lambda f, us, fs: us[0] + fs[0] + f(fs[0]),
    "picard2": lambda f, us, fs: us[0] + f(us[0] + fs[0]),
    "leapfrog": lambda f, us, fs: 2 * us[0] - us[1] + fs[0] if len(us) > 1 else us[0] + fs[0] / 2,
    "midpoint2": lambda f, us, fs: us[1] + 2 * fs[0] if len(us) > 1 else us[0] + fs[0],
    "ab2": lambda f, us, fs: us[0] + 1.5 * fs[0] - 0.5 * fs[1] if len(us) > 1 else us[0] + fs[0],
    "ab3": lambda f, us, fs: us[0] + (23 * fs[0] - 16 * fs[1] + 5 * fs[2]) / 12 if len(us) > 2 else heun(f, us, fs),
}


@pytest.mark.parametrize("scheme", TEXTBOOK)
def test_trajectory_is_the_formula_of_the_textbooks(scheme: str) -> None:
    own = stage(scheme, 4).eval()
    u = state()
    trajectory = list(own.states(u))
    us, fs = [u], []
    for block in own.blocks:
        fs.insert(0, block(us[0]))
        us.insert(0, TEXTBOOK[scheme](block, us, fs))
    for ours, theirs in zip(trajectory, reversed(us), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert torch.equal(own(u), trajectory[-1])


def test_lm_is_its_formula() -> None:
    own = stage("lm", 4).eval()
    u = state()
    states = [u, u + own.blocks[0](u)]  # the first step owns no k
    assert own.k is not None and own.k.shape == (3,)
    for k, block in zip(own.k, list(own.blocks)[1:], strict=True):
        states.append((1 - k) * states[-1] + k * states[-2] + block(states[-1]))
    torch.testing.assert_close(own(u), states[-1], rtol=1e-13, atol=1e-13)


def test_one_step_of_lm_starts_and_is_eulers() -> None:
    own = stage("lm", 1).eval()
    u = state()
    torch.testing.assert_close(own(u), u + own.blocks[0](u), rtol=1e-14, atol=1e-14)


def test_lm_at_zero_is_euler_to_the_bit() -> None:
    own = stage("lm").eval()
    assert own.k is not None
    with torch.no_grad():
        own.k.zero_()
        euler = Stage(get_scheme("euler"), list(own.blocks))
        u = state()
        assert torch.equal(own(u), euler(u))


@pytest.mark.parametrize("scheme", ["heun", "rk4", "neumann2", "picard2", "fractal2"])
def test_every_evaluation_moves_its_own_statistics(scheme: str) -> None:
    own = stage(scheme)
    own(state())
    count = own.scheme.stages
    for block in own.blocks:
        assert isinstance(block, PreActivation)
        for layer in block.norms:
            moved = [
                layer.get_buffer("running_mean"),
                *(layer.get_buffer(f"running_mean_{i}") for i in range(1, count)),
            ]
            assert all(mean.abs().sum() > 0 for mean in moved)
            assert not torch.equal(moved[0], moved[1])


def test_relu_of_post_activation_stands_after_the_step_only() -> None:
    scheme = get_scheme("heun")
    block = PostActivation(basic(4, 4), 2).double()
    seen: list[Tensor] = []

    def spy(module: nn.Module, inputs: tuple[Tensor, int]) -> None:
        seen.append(inputs[0])

    block.register_forward_pre_hook(spy)
    own = Stage(scheme, [block], after=torch.relu).double()
    u = state().relu()
    end = own(u)
    assert (end >= 0).all()
    assert len(seen) == 2 and (seen[1] < 0).any()  # Heun's second stage is evaluated before any ReLU
    own.eval()
    step = advance(scheme, (Point(u, right_hand_side(block)),), 1)
    assert (step < 0).any() and torch.equal(own(u), step.relu())


def transition(project_past: bool) -> Transition:
    past = conv(4, 8, 1, 2) if project_past else None
    return Transition(PreActivation(basic(4, 8, 2)), Subsample(4, 8, 2), past).double().eval()


def test_transition_is_an_euler_step_whose_projected_input_is_the_past() -> None:
    change = transition(project_past=False)
    block = PreActivation(basic(8, 8)).double().eval()
    own = Stage(get_scheme("lm"), [block], change).double()
    assert own.k is not None and own.k.shape == (1,)
    x = state()
    before = change.shortcut(x)
    first = before + change.block(x)
    k = own.k[0]
    last = (1 - k) * first + k * before + block(first)
    for ours, theirs in zip(own.states(x), (before, first, last), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)


def test_projected_past_makes_the_transition_a_full_step() -> None:
    change = transition(project_past=True)
    own = Stage(get_scheme("lm"), [], change).double()
    assert own.k is not None and own.k.shape == (1,)
    x, past = state(), state()
    k, before = own.k[0], change.shortcut(x)
    assert change.project_past is not None
    expected = (1 - k) * before + k * change.project_past(past) + change.block(x)
    torch.testing.assert_close(own(x, past), expected, rtol=1e-13, atol=1e-13)
    assert [name for name, _ in own.named_coefficients()] == ["transition"]
    with pytest.raises(UserError, match=r"call it with \(x, past\)"):
        own(x)


def test_a_gate_of_zero_does_not_evaluate_the_block() -> None:
    own = stage("euler")
    evaluated: list[int] = []
    for n, block in enumerate(own.blocks):
        block.register_forward_hook(lambda *_, n=n: evaluated.append(n))
    own(state(), gates=[1.0, 0.0, 0.5])
    assert evaluated == [0, 2]


def test_step_size_enters_the_scheme() -> None:
    own = stage("euler", 1).eval()
    scaled = Stage(own.scheme, list(own.blocks), dt=0.25)
    u = state()
    torch.testing.assert_close(scaled(u) - u, (own(u) - u) / 4)


def test_initial_law_of_k_and_per_channel_k() -> None:
    scheme = get_scheme("lm")
    own = Stage(scheme, blocks("lm", 300))
    assert own.k is not None
    assert -0.1 <= own.k.min() < -0.09 and -0.01 < own.k.max() <= 0
    channels = Stage(scheme, blocks("lm", 3), k_channels=4)
    assert channels.k is not None and channels.k.shape == (2, 4, 1, 1)
    channels(torch.randn(2, 4, 8, 8)).sum().backward()
    assert channels.k.grad is not None
    for given in (Stage(scheme, blocks("lm", 3), initial_k=-0.5), Stage(get_scheme("lm", k=-0.5), blocks("lm", 3))):
        assert given.k is not None and torch.equal(given.k, torch.full((2,), -0.5))


def test_a_scheme_without_coefficients_has_no_parameter() -> None:
    assert Stage(get_scheme("heun"), blocks("heun", 2)).k is None
    assert Stage(get_scheme("lm"), blocks("lm", 1)).k is None  # one step, which starts


def test_shows_its_scheme_and_its_k_as_they_are_now() -> None:
    own = Stage(get_scheme("lm"), blocks("lm", 3), initial_k=-0.5)
    assert own.extra_repr() == "scheme=lm, dt=1, equation: (1 + k) u' = f, k = -0.5, -0.5"
    assert own.k is not None
    with torch.no_grad():
        own.k[1] = 0.25
    assert own.extra_repr().endswith("k = -0.5, 0.25")
    assert stage("heun").extra_repr() == "scheme=heun, dt=1, equation: u' = f"
    bounded = Stage(get_scheme("lm+neumann2"), blocks("lm+neumann2", 2), initial_k=0.0, k_bound="stable")
    assert bounded.extra_repr().endswith("(1 + k) u' = f, f linear, k = 0, -1 < k < 1")


@pytest.mark.parametrize("dt", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_step_size(dt: float) -> None:
    with pytest.raises(UserError, match=r"dt = .*expected (more than 0|a finite number)"):
        Stage(get_scheme("euler"), [], dt=dt)


@pytest.mark.parametrize("k", [float("nan"), "0.1"])
def test_bad_coefficient(k: float) -> None:
    with pytest.raises(UserError, match=r"initial_k = .*expected a (finite )?number"):
        Stage(get_scheme("lm"), blocks("lm", 2), initial_k=k)


def test_a_coefficient_that_the_scheme_would_ignore_is_refused() -> None:
    with pytest.raises(UserError, match=r"k = -0.5: scheme 'heun' learns no coefficients; .*'lm'"):
        Stage(get_scheme("heun"), [], initial_k=-0.5)
    with pytest.raises(UserError, match=r"k_per_channel: scheme 'euler'"):
        Stage(get_scheme("euler"), [], k_channels=4)


def test_schemes_that_make_no_network() -> None:
    with pytest.raises(UserError, match=r"backward_euler.*makes no network"):
        check_makes_network(get_scheme("backward_euler"))
    with pytest.raises(UserError, match=r"coupled.*revnet"):
        check_makes_network(get_scheme("coupled"))
    with pytest.raises(UserError, match=r"lm.*does not advance a pair.*coupled"):
        check_makes_network(get_scheme("lm"), pair=True)


class Relaxed(Scheme):
    """`u + k dt f`: one step, and a coefficient for it."""

    name, trainable, k, initial_k = "relaxed", True, 1, (0.5, 1.0)

    def increment(self, past, dt, k):
        return combine((dt, combine((k, past[0].f))))


class Lagging(LinearMultistep):
    """`(1 - k) u_n + k u_{n-2} + dt f(u_n)`: three steps."""

    name, trainable, k, initial_k = "lagging", True, 0, (-0.1, 0.0)

    def __init__(self) -> None:
        super().__init__(*self.coefficients(self.k), start=get_scheme("euler"))

    def coefficients(self, k):
        return (1, k - 1, 0, -k), (0, 1, 0, 0)


@pytest.mark.parametrize("project_past", [False, True])
@pytest.mark.parametrize(("scheme", "owned"), [(Relaxed(), [3, 2]), (Lagging(), [1, 1])])
def test_a_trainable_scheme_of_any_number_of_steps_uses_every_parameter(
    scheme: Scheme, owned: list[int], project_past: bool
) -> None:
    backbone = Backbone(basic, (4, 8), (3, 3), stem_width=4, pre_activation=True, project_past=project_past)
    network = ResidualNetwork(backbone, scheme)
    found = [len(stage.k) for stage in network.stages]
    assert found == [owned[0], owned[1] + (project_past and scheme.steps > 1)]
    network(torch.randn(2, 3, 8, 8)).square().sum().backward()
    assert [name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize("memory", ["stored", "recompute", "reversible"])
def test_a_step_size_for_each_step(memory: Memory) -> None:
    blocks = [PreActivation(basic(4, 4)).double().eval() for _ in range(4)]
    dts, ks = (1, 0.5, 0.25, 0.25), [-0.5, 0.25, -0.5]
    stage = Stage(get_scheme("lm"), blocks, dt=dts, memory=memory).double()
    assert stage.k is not None
    with torch.no_grad():
        stage.k.copy_(torch.tensor(ks))
    x = state().requires_grad_()
    old, u = x, x + dts[0] * blocks[0](x)
    for dt, k, block in zip(dts[1:], ks, blocks[1:], strict=True):
        old, u = u, (1 - k) * u + k * old + dt * block(u)
    torch.testing.assert_close(stage(x), u, rtol=1e-12, atol=1e-12)
    wanted = torch.autograd.grad(u.square().sum(), [x, *stage.blocks.parameters()])
    found = torch.autograd.grad(stage(x).square().sum(), [x, *stage.blocks.parameters()])
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def test_step_sizes_that_are_too_few() -> None:
    with pytest.raises(UserError, match=r"dt = \(1, 0.5\): 2 step sizes for a stage of 3 steps"):
        Stage(get_scheme("euler"), [nn.Identity()] * 3, dt=(1, 0.5))
