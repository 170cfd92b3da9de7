"""The kinetic running cost."""

import pytest
import torch

from stepnet import create_model
from stepnet.nets.cost import KineticCost


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
