"""What was tuned on a shallow network, for a deep one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stepnet
from conversion.test_grid import IMAGES, network
from stepnet.errors import UserError
from stepnet.training.build import build_network, build_optimizer
from stepnet.training.depth_transfer import Multiples
from training.tiny import tiny_config


def gpt(layers: int) -> Any:
    torch.manual_seed(0)
    return stepnet.create_model(f"gpt{layers}x16", num_classes=16)


# For four times the depth: dt, and of the blocks the rate and eps, by hand from the table of Dey et al. for AdamW, and
# the decay that keeps decay times rate, or for Adam decay over gradient.
TABLE = [
    ("1/L", "adamw", 1 / 4, 1.0, 1 / 4, 1.0),
    ("1/sqrt(L)", "adamw", 1 / 2, 1 / 2, 1 / 2, 2.0),
    ("1/L", "adam", 1 / 4, 1.0, 1 / 4, 1 / 4),
    ("1/sqrt(L)", "adam", 1 / 2, 1 / 2, 1 / 2, 1 / 2),
    ("1/L", "sgd", 1 / 4, 4.0, None, 1 / 4),
    ("1/sqrt(L)", "sgd", 1 / 2, 1.0, None, 1.0),
]


@pytest.mark.parametrize(("rule", "optimizer", "dt", "lr", "eps", "decay"), TABLE)
def test_the_table(rule: Any, optimizer: Any, dt: float, lr: float, eps: float | None, decay: float) -> None:
    network, (others, blocks) = stepnet.depth_transfer(
        gpt(8), base_depth=2, rule=rule, optimizer=optimizer, lr=0.01, weight_decay=0.1
    )
    assert set(network.stages[0].dts) == {dt}
    assert (others["lr"], others["weight_decay"]) == (0.01, 0.1)
    assert (blocks["lr"], blocks["weight_decay"]) == pytest.approx((0.01 * lr, 0.1 * decay))
    assert blocks.get("eps") == (None if eps is None else pytest.approx(1e-8 * eps))
    assert {id(p) for p in blocks["params"]} == {id(p) for p in network.stages[0].blocks.parameters()}
    assert len(others["params"]) + len(blocks["params"]) == len(list(network.parameters()))
    (torch.optim.SGD if optimizer == "sgd" else torch.optim.AdamW)([others, blocks])


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_step_changes_the_output_as_much_at_every_depth(optimizer: Any) -> None:
    """The rule "1/L" by what it is for: equal copies of one block, one step of the optimiser, the change of u_N."""
    changes = []
    for layers in (2, 4, 8, 16):
        base = stepnet.refine(gpt(2).double(), layers // 2, dt=1) if layers > 2 else gpt(2).double()
        with torch.no_grad():  # refine divides the outputs, which is the rule's own part: undo it
            for block in base.stages[0].blocks:
                block.project.weight.mul_(layers / 2)
        network, groups = stepnet.depth_transfer(base, base_depth=2, optimizer=optimizer, lr=1e-4, eps=1e-12)
        with torch.no_grad():  # initial weights of GPT shrink as L^-1/2, and these do not
            for block in network.stages[0].blocks:
                block.project.weight.mul_((layers / 2) ** -0.5)
        tokens = torch.arange(12).reshape(2, 6)
        before = network.forward_features(tokens)
        kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.AdamW
        step = kind([groups[1]])
        (before * torch.linspace(-1, 1, before.numel()).view_as(before)).sum().backward()
        step.step()
        with torch.no_grad():
            changes.append(float((network.forward_features(tokens) - before).norm()))
    assert max(changes) < 1.5 * min(changes), changes


def test_recipes_take_the_rule(tmp_path) -> None:
    """Stages of 3, 1 + 2, 1 + 2 blocks against 2, 2, 2: the transitions keep their step and their rate."""
    config = tiny_config(tmp_path, model="preact_resnet20", recipe={"tuned_at_depth": 14, "weight_decay": 0.1})
    network = build_network(config, config.read_data())
    assert network.stages[0].dts == pytest.approx((2 / 3,) * 3)
    assert network.stages[1].dts == pytest.approx((1, 2 / 3, 2 / 3))
    optimizer = build_optimizer(config.recipe, network)
    found = {id(p): (g["multiple"], g["weight_decay"]) for g in optimizer.param_groups for p in g["params"]}
    assert found[id(network.stages[0].blocks[0].convs[0].weight)] == pytest.approx((1.5, 0.1 / 1.5))
    assert found[id(network.stages[1].transition.block.convs[0].weight)] == (1.0, 0.1)
    assert found[id(network.stem.weight)] == (1.0, 0.1)


def test_a_converted_network_by_hand() -> None:
    """Four blocks against two: half the step size; its k keep their rate."""
    plain = network(blocks=4)
    converted = stepnet.convert(plain, "lm", IMAGES)
    half, (others, blocks) = stepnet.depth_transfer(converted, base_depth=2, optimizer="sgd", lr=0.01, weight_decay=0.1)
    with torch.no_grad():
        past, u = None, plain[0](IMAGES)
        for n, block in enumerate(plain[1]):
            k = 0.0 if past is None else float(dict(half.named_parameters())[f"1.{n}.step_k"])
            past, u = u, u + k * (0 if past is None else past - u) + block.f(u) / 2
        torch.testing.assert_close(half.eval()(IMAGES), plain[3](plain[2](u)), rtol=1e-10, atol=1e-10)
    assert (blocks["lr"], blocks["weight_decay"]) == pytest.approx((0.02, 0.05))
    inside = {id(p) for name, p in half.named_parameters() if name.startswith("1.") and not name.endswith("step_k")}
    assert {id(p) for p in blocks["params"]} == inside
    assert {id(p) for p in others["params"]} == {id(p) for p in half.parameters()} - inside


def test_recipes_take_the_rule_for_converted_networks(tmp_path) -> None:
    """A resnet18 has eight blocks in four stages; the first of three stages change the shape and keep their step."""
    recipe = {"tuned_at_depth": 4, "optimizer": "adamw", "depth_rule": "1/sqrt(L)"}
    config = tiny_config(tmp_path, model="torchvision/resnet18", scheme="lm", recipe=recipe)
    model = build_network(config, config.read_data())
    (optimizer,) = [build_optimizer(config.recipe, model)]
    sizes = [step.dt for stage in stepnet.nets.steps_by_stage(model) for step in stage]
    assert sizes == pytest.approx([0.5**0.5, 0.5**0.5, *(1, 0.5**0.5) * 3])
    found = {id(p): g["multiple"] for g in optimizer.param_groups for p in g["params"]}
    assert found[id(model.layer1[0].conv1.weight)] == pytest.approx(0.5**0.5)
    assert found[id(model.layer2[0].conv1.weight)] == found[id(model.layer1[1].step_k)] == 1.0
    with pytest.raises(UserError, match="tuned_at_depth = 4: 'torchvision/resnet18' has no steps; add --scheme euler"):
        build_network(config.__class__(**{**vars(config), "scheme": None}), config.read_data())


def test_the_same_depth_changes_nothing() -> None:
    network = gpt(4)
    same, groups = stepnet.depth_transfer(network, base_depth=4)
    assert same.stages[0].dts == network.stages[0].dts
    assert [group["lr"] for group in groups] == [1e-3, 1e-3]
    torch.testing.assert_close(same.state_dict(), network.state_dict())


def test_what_cannot_be_transferred() -> None:
    with pytest.raises(UserError, match="gpt1x16 has one block"):
        stepnet.depth_transfer(gpt(1), base_depth=1)
    with pytest.raises(UserError, match="Linear has no stages"):
        stepnet.depth_transfer(torch.nn.Linear(2, 2), base_depth=1)
    with pytest.raises(UserError, match=r"preact_resnet20 at depth 21: expected 6n \+ 2"):
        stepnet.depth_transfer(stepnet.create_model("preact_resnet20"), base_depth=21)
    with pytest.raises(UserError, match="unknown optimizer with a rule for depth 'rmsprop': known: adam, adamw, sgd"):
        Multiples.of(2.0, "1/L", "rmsprop")
    with pytest.raises(UserError, match="rule = '2/L': expected"):
        stepnet.depth_transfer(gpt(4), base_depth=2, rule="2/L")
