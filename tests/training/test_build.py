"""A config becomes a network."""

import pytest
import torch
from torch import nn

import stepnet
from stepnet import UserError
from stepnet.data import get_data
from stepnet.training.build import build_network
from training.tiny import tiny_config


def test_synchronised_layers_of_a_converted_network_keep_statistics_for_each_evaluation(tmp_path):
    config = tiny_config(tmp_path, model="timm/resnet18", scheme="heun", sync_bn=True)
    network = build_network(config, get_data("digits", None))
    layers = [m for m in network.modules() if isinstance(m, nn.SyncBatchNorm)]
    assert layers and not any(isinstance(m, nn.BatchNorm2d) for m in network.modules())
    assert any("step_running_mean_1" in dict(layer.named_buffers()) for layer in layers)
    network.eval()
    assert torch.isfinite(network(torch.randn(2, 1, 8, 8))).all()


def test_a_name_of_another_library_is_told_with_its_library(tmp_path):
    with pytest.raises(UserError, match=r"unknown model 'resnet18': did you mean timm/resnet18"):
        build_network(tiny_config(tmp_path, model="resnet18"), get_data("digits", None))


def test_weights_are_a_function_of_model_and_seed(tmp_path):
    data = get_data("digits", None)
    one, two = (build_network(tiny_config(tmp_path, seed=3), data).state_dict() for _ in range(2))
    other = build_network(tiny_config(tmp_path, seed=4), data).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["stem.weight"], other["stem.weight"])


def test_a_network_starts_like_another_where_they_agree(tmp_path):
    data = get_data("digits", None)
    like = build_network(tiny_config(tmp_path, model="preact_resnet20"), data).state_dict()
    network = build_network(tiny_config(tmp_path, model="lm_resnet20", start_like="preact_resnet20"), data).state_dict()
    assert set(network) - set(like) == {f"stages.{n}.k" for n in range(3)}
    assert all(torch.equal(network[name], like[name]) for name in like)
    lm = build_network(tiny_config(tmp_path, model="lm_resnet20"), data).state_dict()
    others = {"preact_resnet20": {}, "lm_resnet20": {"k_per_channel": True}}  # without a k, and of another shape
    for model, options in others.items():
        config = tiny_config(tmp_path, model=model, model_kwargs=options, start_like="lm_resnet20")
        other = build_network(config, data).state_dict()
        assert all(torch.equal(other[name], lm[name]) for name in like)


def test_a_scheme_changes_no_weight_of_those_that_a_comparison_shares(tmp_path):
    data = get_data("digits", None)
    like = build_network(tiny_config(tmp_path, model="preact_resnet20"), data).state_dict()
    for scheme in ("lm", "heun"):
        config = tiny_config(tmp_path, model="preact_resnet20", scheme=scheme, start_like="preact_resnet20")
        network = build_network(config, data).state_dict()
        assert all(torch.equal(network[name], like[name]) for name in like if name in network)
        assert len(set(like) & set(network)) > 40


def test_weights_that_are_given_are_those_of_every_network_of_a_comparison(tmp_path):
    """A trained network against the same one converted: both begin with the trained weights, and k with 0."""
    data = get_data("digits", None)
    trained = build_network(tiny_config(tmp_path, model="preact_resnet20", seed=5), data)
    stepnet.save(trained, tmp_path / "trained.safetensors")
    given = {"weights": str(tmp_path / "trained.safetensors"), "start_like": "preact_resnet20"}
    weights = trained.state_dict()
    for model in ("preact_resnet20", "lm_resnet20"):
        network = build_network(tiny_config(tmp_path, model=model, **given), data).state_dict()
        assert all(torch.equal(network[name], weights[name]) for name in weights)
        assert all(not network[name].any() for name in network.keys() - weights.keys())


def test_a_converted_network_takes_the_memory_mode_of_the_run(tmp_path):
    config = tiny_config(tmp_path, model="timm/resnet18", scheme="lm", memory="auto")
    steps = [module for module in build_network(config, get_data("digits")).modules() if hasattr(module, "step_role")]
    assert {step.step_role.memory for step in steps} == {"recompute"}  # a ReLU after each sum cannot be undone
    assert [step.memory_in_use for step in steps if step.memory_in_use] == ["recompute"] * 4


def test_a_converted_network_takes_the_stochastic_depth_of_the_recipe(tmp_path):
    data = get_data("digits")
    gated = {"stochastic_depth": 0.5, "stochastic_mode": "drop_path"}
    network = build_network(tiny_config(tmp_path, model="timm/resnet18", scheme="lm", recipe=gated), data)
    gates = network.draw(0, 0, range(3))
    assert len(gates) == 8 and {gate.numel() for gate in gates} == {3}
    for recipe in (gated, {"running_cost": "kinetic"}):
        with pytest.raises(UserError, match=r"'timm/resnet18' has no steps; add --scheme euler"):
            build_network(tiny_config(tmp_path, model="timm/resnet18", recipe=recipe), data)
