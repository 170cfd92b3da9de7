"""The lesion study against networks from which the blocks were removed by hand."""

import copy

import pytest
import torch
from torch import nn

from stepnet import convert, create_model
from stepnet.report.dynamics import network_steps
from stepnet.report.lesion import lesion_study, scaled

torch.manual_seed(0)
IMAGES = torch.randn(64, 1, 8, 8)


def network(name: str, **options) -> nn.Module:
    """With running statistics of these images."""
    torch.manual_seed(1)
    model = create_model(name, in_channels=1, **options)
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(IMAGES)
    return model.eval()


def error(model: nn.Module, labels: torch.Tensor) -> float:
    with torch.no_grad():
        return 100 * float((model(IMAGES).argmax(1) != labels).double().mean())


def steps_of(model: nn.Module):
    return [step for stage in network_steps(model) for step in stage]


def test_dropping_blocks_is_removing_them_from_a_resnet() -> None:
    model = network("preact_resnet20")
    with torch.no_grad():
        labels = model(IMAGES).argmax(1)  # its own answers: every change is an error
        labels[:8] = 0
    found = lesion_study(model, IMAGES, labels, batch_size=50)
    assert found.intact == error(model, labels)
    assert found.transitions == {3, 6} and len(found.single) == 9 and len(found.pairs) == 36
    assert found.single[1] == error(shorter(copy.deepcopy(model), stage=0, keep=[0, 2]), labels)
    assert found.single[8] == error(shorter(copy.deepcopy(model), stage=2, keep=[0]), labels)
    assert found.pairs[1, 2] == error(shorter(copy.deepcopy(model), stage=0, keep=[0]), labels)
    assert len(set(found.single.values())) > 5
    assert found.rows[0] == ("nothing", found.intact)
    assert found.rows[1 + 1] == ("stages.0.blocks.1", found.single[1])


def test_a_neighbour_may_take_the_time_of_a_dropped_block() -> None:
    """Its f counts twice: as if its last layer did. After a transition the next block takes it."""
    model = network("preact_resnet20")
    with torch.no_grad():
        labels = model(IMAGES).argmax(1)
    found = lesion_study(model, IMAGES, labels)
    assert set(found.rescaled) == set(range(9)) - found.transitions
    for dropped, stage, heir, keep in ((1, 0, 0, [0, 2]), (4, 1, 1, [1])):
        longer = copy.deepcopy(model)
        longer.stages[stage].blocks[heir].convs[-1].weight.data.mul_(2)
        assert found.rescaled[dropped] == error(shorter(longer, stage=stage, keep=keep), labels)
    assert found.rescaled != {n: found.single[n] for n in found.rescaled}


@pytest.mark.parametrize("split", [True, False])
def test_a_converted_step_is_made_longer(split: bool) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Linear(3, 3)

        def forward(self, u: torch.Tensor) -> torch.Tensor:
            return u + self.f(u) if split else (u + self.f(u)).clone()

    torch.manual_seed(0)
    model = convert(nn.Sequential(Block(), Block()), "euler", torch.randn(2, 3))
    u = torch.randn(4, 3)
    with torch.no_grad(), scaled(steps_of(model)[0], 3.0):
        v = u + 3 * model[0].f(u)
        torch.testing.assert_close(model(u), v + model[1].f(v))


def shorter(model: nn.Module, stage: int, keep: list[int]) -> nn.Module:
    old = model.stages[stage]
    model.stages[stage] = type(old)(old.scheme, [old.blocks[n] for n in keep], old.transition, old.dts[0], old.after)
    return model


def test_a_dropped_transition_is_its_projection_alone() -> None:
    model = network("preact_resnet20")
    steps = steps_of(model)
    by_hand = copy.deepcopy(model)
    stage = by_hand.stages[1]
    alone = nn.Sequential(stage.transition.shortcut)
    by_hand.stages[1] = type(stage)(stage.scheme, list(stage.blocks))
    by_hand.stages[1].register_forward_pre_hook(lambda module, args: (alone(args[0]), *args[1:]))
    with scaled(steps[3], 0.0):
        dropped = model.forward_features(IMAGES)
    assert torch.equal(dropped, by_hand.forward_features(IMAGES))


def test_a_dropped_block_of_lm_leaves_the_carry() -> None:
    model = network("lm_resnet20", k=-0.3)
    stage = model.stages[0]
    x = torch.randn(4, 16, 8, 8)
    u0, u1 = x, x + stage.blocks[0](x)
    u2 = 1.3 * u1 - 0.3 * u0  # the second block is gone
    u3 = 1.3 * u2 - 0.3 * u1 + stage.blocks[2](u2)
    with scaled(steps_of(model)[1], 0.0):
        found = stage(x)
    assert torch.allclose(found, u3, atol=1e-5)
    assert not torch.allclose(stage(x), u3, atol=1e-3)  # and afterwards it is back


@pytest.mark.parametrize("name", ["revnet38", "fractalnet20"])
def test_pairs_and_whole_blocks_are_dropped_too(name) -> None:
    model = network(name) if name == "revnet38" else create_model(name, in_channels=1, widths=(4, 4)).eval()
    stage, step = model.stages[0], steps_of(model)[0]
    width = 16 if name == "revnet38" else 4
    x = torch.randn(2, width, 8, 8)
    with scaled(step, 0.0), torch.no_grad():
        states = list(stage.states((x, x.clone()) if name == "revnet38" else x))
    for part, kept in zip(states[0], states[1], strict=True):
        torch.testing.assert_close(torch.max_pool2d(part, 2) if name == "fractalnet20" else part, kept)


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(6, 6)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return u + self.f(u).tanh()


def test_a_block_of_a_converted_network_is_dropped() -> None:
    blocks = [Whole() for _ in range(3)]
    x = torch.randn(8, 6)
    model = convert(nn.Sequential(*copy.deepcopy(blocks)), "euler", x)
    with scaled(steps_of(model)[1], 0.0):
        assert torch.equal(model(x), nn.Sequential(blocks[0], blocks[2])(x))
    assert torch.equal(model(x), nn.Sequential(*blocks)(x))


def test_a_split_block_of_torchvision_keeps_its_shortcut() -> None:
    torchvision = pytest.importorskip("torchvision")
    plain = torchvision.models.resnet18(num_classes=10).eval()
    x = torch.randn(1, 3, 64, 64)
    model = convert(copy.deepcopy(plain), "euler", x)
    names = [step.name for step in steps_of(model)]
    number = names.index("layer1.1")
    plain.layer1[1] = nn.ReLU()
    with scaled(steps_of(model)[number], 0.0), torch.no_grad():
        assert torch.allclose(model(x), plain(x), atol=1e-6)
