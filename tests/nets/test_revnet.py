"""RevNet: its counts, and that it is the coupled scheme on its own blocks."""

import copy

import pytest
import torch

from stepnet import create_model, get_scheme
from stepnet.errors import UserError
from stepnet.nets.cost import on_meta, profile, saved_bytes
from stepnet.nets.march import right_hand_side
from stepnet.nets.revnet import revnet


def small(seed: int = 0, **options) -> torch.nn.Module:
    torch.manual_seed(seed)
    return create_model("revnet38", **options)


@pytest.mark.parametrize(
    ("name", "parameters"), [("revnet38", 464_858), ("revnet110", 1_729_162), ("revnet164", 1_748_746)]
)
def test_parameters_of_the_cifar_nets(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = create_model(name)
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize(
    ("name", "layers"),
    [("revnet38", 38), ("revnet110", 110), ("revnet164", 164), ("revnet56", 56), ("revnet104", 104)],
)
def test_layers_are_those_of_the_name(name: str, layers: int) -> None:
    with torch.device("meta"):
        model = create_model(name)
    shortcuts = [m for stage in model.stages if stage.transition is not None for m in stage.transition.shortcuts]
    projections = sum(isinstance(m, torch.nn.Conv2d) for m in shortcuts)
    convolutions = sum(isinstance(m, torch.nn.Conv2d) for m in model.modules())
    assert convolutions - projections + 1 == layers  # and the classifier


def test_the_network_is_the_scheme_on_its_own_blocks() -> None:
    model = small().double().eval()
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    x, y = model.stem(images).chunk(2, dim=1)
    for stage in model.stages:
        if stage.transition is not None:
            pair, (project_x, project_y) = stage.transition.coupling, stage.transition.shortcuts
            x, y = project_x(x) + pair.f(y), project_y(y)
            y = y + pair.g(x)
        for pair in stage.blocks:
            x = x + pair.f(y)
            y = y + pair.g(x)
    features = torch.relu(model.norm(torch.cat([x, y], dim=1)))
    torch.testing.assert_close(model.forward_features(images), features, rtol=1e-13, atol=1e-13)


def test_a_stage_runs_back_to_its_first_state() -> None:
    stage = small().double().eval().stages[0]
    first, *_, last = stage.states(torch.randn(2, 32, 8, 8, dtype=torch.float64).chunk(2, dim=1))
    state = last
    for pair in reversed(stage.blocks):
        state = get_scheme("coupled").inverse((state,), (right_hand_side(pair.f), right_hand_side(pair.g)), 1, None, 1)
    for found, expected in zip(state, first, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_training_gradients_are_those_of_stored_activations() -> None:
    model = small().double()
    images = torch.randn(4, 3, 16, 16, dtype=torch.float64)
    found = []
    for memory in ("reversible", "recompute", "stored"):
        net = copy.deepcopy(model)
        net.set_memory(memory)
        net(images).square().sum().backward()
        found.append([p.grad for p in net.parameters()])
    for reversed_, again, autograd in zip(*found, strict=True):
        torch.testing.assert_close(reversed_, autograd, rtol=1e-10, atol=1e-10)
        assert torch.equal(again, autograd)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("name", ["lm_revnet38", "lm_poly2_resnet20"])
def test_lm_over_a_revnet_and_a_polynet_runs_backwards(name: str, dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    model, images = create_model(name, k=-0.9, dt=0.3).to(dtype), torch.randn(4, 3, 16, 16, dtype=dtype)
    found = []
    for memory in ("stored", "reversible", "auto"):
        net = copy.deepcopy(model)
        net.set_memory(memory)
        net(images).square().sum().backward()
        found.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
    assert {stage.memory_in_use for stage in net.stages} == {"reversible"}
    stored, reversed_, auto = found
    assert float((reversed_ - stored).norm() / stored.norm()) < tolerance
    assert torch.equal(auto, reversed_)


def test_an_inverse_that_divides_by_k_is_taken_if_asked_for() -> None:
    assert {stage.memory for stage in create_model("lm_revnet38").stages} == {"stored"}
    near_zero = create_model("lm_revnet38", memory="auto")
    assert {stage.memory_in_use for stage in near_zero.stages} == {"recompute"}


def test_depth_costs_no_activation_memory() -> None:
    shallow, deep = profile(on_meta("revnet56")), profile(on_meta("revnet104"))
    assert deep.activation_bytes == shallow.activation_bytes
    assert deep.multiply_adds > 1.5 * shallow.multiply_adds
    images = torch.randn(2, 3, 16, 16)
    assert saved_bytes(small(), images) < saved_bytes(small(memory="stored"), images) / 4


def test_what_cannot_be_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="'heun' does not advance a pair"):
        create_model("revnet38", scheme="heun")
    with pytest.raises(UserError, match="use a revnet model"):
        create_model("resnet20", scheme="coupled")
    with pytest.raises(UserError, match="expected \\[batch, 3, height, width\\]"):
        small()(torch.zeros(1, 4, 8, 8))
    with pytest.raises(UserError, match="RevNet of depth 20: expected one of 38"):
        revnet(20)
