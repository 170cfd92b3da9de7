"""A network's trajectory: the states of its march, stage by stage, and hooks that see them."""

from __future__ import annotations

import pytest
import torch
from captum.attr import LayerGradCam
from torch import Tensor, nn

from stepnet import UserError, create_model
from stepnet.nets import ResidualNetwork
from stepnet.nets.trajectories import KineticCost


def images(size: int = 8) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(2, 3, size, size, dtype=torch.float64)


@pytest.mark.parametrize("name", ["resnet20", "lm_resnet20", "lm_resnext29_8x64d", "heun_resnet20"])
def test_states_are_those_of_the_equation(name: str) -> None:
    options = {"scheme": "heun"} if name.startswith("heun_") else {}
    model = create_model(name.removeprefix("heun_"), **options).double().eval()
    with torch.no_grad():
        stages = model.trajectory(images())
        features = model.forward_features(images())
    assert [len(states) for states in stages] == [stage.depth + 1 for stage in model.stages]  # type: ignore[union-attr]
    last = stages[-1][-1]
    assert torch.equal(features, torch.relu(model.norm(last)) if model.pre_activation else last)  # type: ignore[operator]


def test_lm_states_satisfy_the_two_step_equation() -> None:
    model = create_model("preact_resnet20", scheme="lm", k=-0.3).double().eval()
    assert isinstance(model, ResidualNetwork)
    with torch.no_grad():
        stages = model.trajectory(images())
        for stage, states in zip(model.stages, stages, strict=True):
            first = 1 if stage.transition is None else 0  # type: ignore[union-attr]
            for n, (before, u, new) in enumerate(zip(states, states[1:], states[2:], strict=False)):
                f = stage.blocks[n + first](u)  # type: ignore[index, operator]
                torch.testing.assert_close(new, 1.3 * u - 0.3 * before + f)


def test_pairs_of_a_revnet_in_training_too() -> None:
    model = create_model("revnet38").double()
    stages = model.trajectory(images())
    assert [len(states) for states in stages] == [4, 4, 4]
    x, y = stages[-1][-1]
    assert x.shape == y.shape == (2, 56, 2, 2)
    x.sum().backward()


def test_fractals_and_polynet_units_are_stages() -> None:
    assert len(create_model("fractalnet20", widths=(4, 4)).trajectory(images().float())) == 2
    with torch.device("meta"):
        stages = create_model("very_deep_polynet", a=2, b=1, c=1).trajectory(torch.randn(2, 3, 64, 64))
    assert len(stages) == 6 and all(len(states) == 2 for states in stages)


def test_no_hook_is_left_behind() -> None:
    model = create_model("resnet20").double()
    with pytest.raises(UserError, match="expected"):
        model.trajectory(images()[:, :2])
    model.trajectory(images())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_a_network_without_a_scheme_has_none() -> None:
    with pytest.raises(UserError, match="DenseNet has no trajectory"):
        create_model("densenet100_k24").trajectory(images().float())


def test_hooks_on_stages_and_blocks_fire() -> None:
    model = create_model("lm_resnet20").double()
    seen: list[str] = []

    def note(name: str) -> None:
        module = model.get_submodule(name)
        assert isinstance(module, nn.Module)
        module.register_forward_hook(lambda m, x, y: seen.append(name))

    for name in ("stages.0", "stages.1", "stages.2", "stages.1.blocks.0", "stages.1.transition.block"):
        note(name)
    model(images())
    assert seen == ["stages.0", "stages.1.transition.block", "stages.1.blocks.0", "stages.1", "stages.2"]


def test_grad_cam_of_a_stage_is_that_of_its_last_state() -> None:
    """Selvaraju et al. 2017: the channels weighted by the mean gradient of the logit."""
    model = create_model("lm_resnet20").double().eval()
    found = LayerGradCam(model, model.stages[2]).attribute(images(), target=3)
    state = model.trajectory(images())[2][-1]
    logits = model.forward_head(torch.relu(model.norm(state)))
    (gradient,) = torch.autograd.grad(logits[:, 3].sum(), state)
    torch.testing.assert_close(found, (gradient.mean((2, 3), keepdim=True) * state).sum(1, keepdim=True))
    block = LayerGradCam(model, model.stages[1].blocks[0]).attribute(images(), target=3)
    assert block.any()


@pytest.mark.parametrize("name", ["resnet20", "lm_resnet20"])
def test_the_cost_is_the_sum_over_blocks_of_the_squared_right_hand_side(name):
    model = create_model(name, dt=0.5).double()
    squares = []
    for stage in model.stages:
        for block in stage.steps:
            block.register_forward_hook(lambda module, inputs, f: squares.append(f.square().sum().item()))
    cost = KineticCost()
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    logits = model(x, cost=cost)
    assert cost.total.item() == pytest.approx(0.5 * sum(squares) / 4, rel=1e-12)
    assert len(squares) == 9
    assert torch.equal(logits, model(x))


def test_a_runge_kutta_step_pays_for_f_at_its_state_only():
    model = create_model("resnet20", scheme="rk4").double()
    squares = []
    for stage in model.stages:
        for block in stage.steps:
            block.register_forward_hook(
                lambda module, inputs, f: squares.append(f.square().sum().item() if inputs[1:] in ((), (0,)) else 0.0)
            )
    cost = KineticCost()
    model(torch.randn(2, 3, 8, 8, dtype=torch.float64), cost=cost)
    assert cost.total.item() == pytest.approx(sum(squares) / 2, rel=1e-12)


def test_gradients_flow_and_descending_them_lowers_the_cost():
    torch.manual_seed(0)
    model, x = create_model("lm_resnet20").double(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    totals = []
    for _ in range(2):
        cost = KineticCost()
        model(x, cost=cost)
        optimizer.zero_grad()
        cost.total.backward()
        optimizer.step()
        totals.append(cost.total.item())
    assert totals[1] < totals[0]


def test_dropped_blocks_cost_nothing():
    model, cost = create_model("resnet20"), KineticCost()
    model(torch.randn(2, 3, 8, 8), noise=[0.0] * 9, cost=cost)
    assert cost.total == 0
