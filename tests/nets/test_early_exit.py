"""Early exits against a loop over the states of every image by itself."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepnet
from stepnet.errors import UserError
from stepnet.nets import EarlyExit
from stepnet.nets.blocks import basic
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.nets.stage import Stage
from stepnet.nets.trajectories import KineticCost

IMAGES = torch.randn(8, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def network(pre_activation: bool = True, project_past: bool = False, **options: Any) -> ResidualNetwork:
    torch.manual_seed(0)
    backbone = Backbone(basic, (4, 8), (4, 4), stem_width=4, pre_activation=pre_activation, project_past=project_past)
    model = ResidualNetwork(backbone, **options).double()
    for n in range(3):
        model(IMAGES * 2**n)
    for stage in model.stages:
        for block in stage.steps:  # increments of about a tenth, which differ from image to image
            (block.convs if pre_activation else block.norms)[-1].weight.data.mul_(0.3)
    return model.eval()


def by_hand(model: ResidualNetwork, image: Tensor, tolerance: float) -> tuple[Tensor, int]:
    u, steps = model.stem(image[None]), 0
    for stage in model.stages:
        states = list(stage.states(u))
        changes = [float((b - a).norm() / b.norm()) for a, b in itertools.pairwise(states)]
        taken = next((n for n, change in enumerate(changes, 1) if change <= tolerance), len(changes))
        u, steps = states[taken], steps + taken
    u = model.norm(u)
    return model.forward_head(u.relu() if model.pre_activation else u)[0], steps


@pytest.mark.filterwarnings("ignore:ab2 takes")
@pytest.mark.parametrize(
    ("pre_activation", "options"),
    [
        (True, {}),
        (False, {}),
        (True, {"scheme": "lm", "k": -0.3}),
        (True, {"scheme": "ab2"}),
        (True, {"scheme": "heun"}),
    ],
)
def test_every_image_takes_the_steps_that_it_takes_alone(pre_activation: bool, options: dict[str, Any]) -> None:
    model = network(pre_activation, **options)
    with torch.no_grad():
        torch.testing.assert_close(model(IMAGES, exit=0.0), model(IMAGES), rtol=1e-12, atol=1e-12)
        changes = [
            (b - a).flatten(1).norm(dim=1) / b.flatten(1).norm(dim=1)
            for s in model.trajectory(IMAGES)
            for a, b in itertools.pairwise(s)
        ]
        tolerance = float(torch.cat(changes).quantile(0.3))
        exit = EarlyExit(tolerance)
        found = model(IMAGES, exit=exit)
        for n, image in enumerate(IMAGES):
            wanted, steps = by_hand(model, image, tolerance)
            torch.testing.assert_close(found[n], wanted, rtol=1e-10, atol=1e-10)
            assert int(exit.steps[n]) == steps
    assert len(set(exit.steps.tolist())) > 1
    assert int(exit.steps.max()) <= 8


def test_what_an_image_skips_is_not_computed() -> None:
    model = network()
    sizes: list[int] = []
    for block in model.blocks:
        block.register_forward_hook(lambda module, args, f: sizes.append(len(f)))
    exit = EarlyExit(0.12)
    with torch.no_grad():
        model(IMAGES, exit=exit)
    assert sum(sizes) == int(exit.steps.sum()) < 8 * len(IMAGES)


class Dense(nn.Module):
    """A block without a convolution, which in bfloat16 ends the process on some processors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        return self.linear(u.flatten(1)).view_as(u)


def test_under_autocast_a_coefficient_for_each_channel_widens_the_states() -> None:
    stage = Stage(stepnet.get_scheme("lm"), [Dense() for _ in range(3)], initial_k=-0.5, k_channels=4).eval()
    u = torch.randn(5, 4, 1, 1, dtype=torch.bfloat16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        wanted = stage(u)
        assert wanted.dtype == torch.float32
        torch.testing.assert_close(stage(u, exit=EarlyExit(0.0)), wanted)


@pytest.mark.parametrize("scheme", ["euler", "lm", "strang"])
@pytest.mark.parametrize("name", ["gpt3x16", "vit3x16"])
def test_a_sequence_leaves_as_an_image_does(name: str, scheme: str) -> None:
    torch.manual_seed(0)
    model = stepnet.create_model(name, scheme=scheme).double().eval()
    x = torch.arange(12).view(3, 4) ** 2 if name.startswith("gpt") else IMAGES[:3]
    with torch.no_grad():
        assert torch.equal(model(x, exit=0.0), model(x))
        (states,) = model.trajectory(x)
        changes = [(b - a).flatten(1).norm(dim=1) / b.flatten(1).norm(dim=1) for a, b in itertools.pairwise(states)]
        tolerance = float(changes[1].median())
        exit = EarlyExit(tolerance)
        found = model.forward_features(x, exit=exit)
        for n in range(3):
            taken = next((m for m, change in enumerate(changes, 1) if change[n] <= tolerance), len(changes))
            last = model.norm(states[taken][n])
            last = last if name.startswith("gpt") else last.T.unflatten(1, (2, 2))
            torch.testing.assert_close(found[n], last, rtol=1e-10, atol=1e-10)
            assert int(exit.steps[n]) == taken
    assert int(exit.steps.min()) < len(changes)
    with pytest.raises(UserError, match=r"exit = 0.1 in training"):
        model.train()(x, exit=0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: network().train()(IMAGES, exit=0.1), "exit = 0.1 in training"),
        (lambda: network()(IMAGES, exit=-0.1), "exit = -0.1: expected a relative change"),
        (lambda: network()(IMAGES, exit=float("nan")), "exit = nan: expected a relative change"),
        (lambda: network()(IMAGES, exit=0.1, cost=KineticCost()), "exit with a running cost"),
        (lambda: network(scheme="momentum")(IMAGES, exit=0.1), "a stage of 'momentum' carries more than one state"),
        (lambda: network().trajectory(IMAGES, exit=0.1), "exit = 0.1: samples take different numbers of steps"),
        (lambda: network(scheme="lm", project_past=True)(IMAGES, exit=0.1), "exit = 0.1: samples take different"),
    ],
)
def test_one_line_for_what_cannot_be(call: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()
