"""A plain network's weights in its LM version and back; a trained body with a new head."""

from __future__ import annotations

import pytest
import torch

import stepnet
from stepnet import UserError
from stepnet.nets import create_model, load_weights

X = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_a_plain_networks_weights_in_its_lm_version_and_back():
    torch.manual_seed(0)
    plain, lm = create_model("preact_resnet20").eval(), create_model("lm_resnet20").eval()
    assert load_weights(lm, plain.state_dict()) == [f"stages.{i}.k" for i in range(3)]
    assert torch.equal(lm(X), plain(X))  # k = 0: to the bit
    lm.stem.weight.data += 1
    assert load_weights(plain, lm.state_dict()) == [f"stages.{i}.k" for i in range(3)]
    assert torch.equal(lm(X), plain(X))


def test_a_new_head_only_where_it_is_asked_for():
    torch.manual_seed(0)
    trained, new = create_model("lm_resnet20"), create_model("lm_resnet20", num_classes=3)
    with pytest.raises(UserError, match=r"'head\.weight': \[10, 64\] float32 in the file, \[3, 64\]"):
        load_weights(new, trained.state_dict())
    head = new.head.weight.clone()
    assert load_weights(new, trained.state_dict(), new_head=True) == ["head.bias", "head.weight"]
    assert torch.equal(new.head.weight, head)
    assert torch.equal(new.eval().forward_features(X), trained.eval().forward_features(X))


def test_a_trained_body_without_a_head():
    body = create_model("lm_resnet20.cifar10", pretrained=True, num_classes=0).eval()
    whole = create_model("lm_resnet20.cifar10", pretrained=True).eval()
    assert torch.equal(body(X), whole.forward_head(whole.forward_features(X), pre_logits=True))


def test_weights_of_another_architecture_are_named():
    with pytest.raises(
        UserError, match=r"are of another network than ResidualNetwork: 'norm\.bias', which only the file"
    ):
        load_weights(create_model("resnet20"), create_model("preact_resnet20").state_dict())


def test_coefficients_enter_an_interval():
    torch.manual_seed(0)
    plain, lm = create_model("preact_resnet20").eval(), create_model("lm_resnet20", k=-0.5).eval()
    for bound in ("stable", (-0.9, 0.1)):
        bounded = create_model("lm_resnet20", k_bound=bound).eval()
        load_weights(bounded, plain.state_dict())
        torch.testing.assert_close(bounded(X), plain(X))
        load_weights(bounded, lm.state_dict())
        torch.testing.assert_close(bounded(X), lm(X))
    with pytest.raises(UserError, match="build it with their k_bound"):
        load_weights(lm, bounded.state_dict())
    with pytest.raises(UserError, match=r"stages\.\d\.k = .* does not lie in k_bound, -0\.1 < k < 0\.1"):
        load_weights(create_model("lm_resnet20", k_bound=(-0.1, 0.1)), lm.state_dict())


def test_by_layer_in_order_of_depth() -> None:
    model = create_model("lm_resnet20")
    found = stepnet.coefficients(model)
    assert list(found) == [
        "stages.0.blocks.1",
        "stages.0.blocks.2",
        "stages.1.blocks.0",
        "stages.1.blocks.1",
        "stages.2.blocks.0",
        "stages.2.blocks.1",
    ]
    torch.testing.assert_close(torch.tensor(list(found.values())), torch.cat([stage.k for stage in model.stages]).data)


def test_projected_past_gives_the_transition_a_coefficient() -> None:
    found = stepnet.coefficients(create_model("lm_resnext29_8x64d", k=-0.5))
    assert found["stages.1.transition"] == -0.5 and "stages.0.transition" not in found


def test_per_channel_and_none() -> None:
    found = stepnet.coefficients(create_model("lm_resnet20", k_per_channel=True))
    value = found["stages.2.blocks.1"]
    assert isinstance(value, list) and len(value) == 64
    assert stepnet.coefficients(create_model("resnet20")) == {}
