"""A network for the features of its stages."""

from __future__ import annotations

import pytest
import torch

from stepnet.errors import UserError
from stepnet.nets import create_model
from stepnet.nets.features import FeatureList


@pytest.mark.parametrize("name", ["lm_resnet20", "revnet38"])
def test_features_only_gives_the_last_states(name: str) -> None:
    torch.manual_seed(0)
    backbone = create_model(name, features_only=True, in_chans=1).double().eval()
    x = torch.randn(2, 1, 16, 16, dtype=torch.float64)
    network = create_model(name, in_channels=1, num_classes=0).double().eval()
    network.load_state_dict(backbone.network.state_dict())
    states = [stage[-1] for stage in network.trajectory(x)]
    joined = [torch.cat(state, dim=1) if isinstance(state, tuple) else state for state in states]
    found = backbone(x)
    assert len(found) == len(backbone.feature_info) == 3 and all(map(torch.equal, found, joined))
    assert [state.shape[1] for state in found] == [info["num_chs"] for info in backbone.feature_info]


@pytest.mark.parametrize("name", ["lm_resnet20", "resnet20", "revnet38"])
def test_every_trainable_parameter_gets_a_gradient(name: str) -> None:
    """DistributedDataParallel waits for the gradients of all."""
    backbone = create_model(name, features_only=True)
    torch.stack([state.square().mean() for state in backbone(torch.randn(2, 3, 16, 16))]).sum().backward()
    trained = [parameter for parameter in backbone.parameters() if parameter.requires_grad]
    assert trained and all(parameter.grad is not None for parameter in trained)


def test_a_network_without_stages_is_refused() -> None:
    with pytest.raises(UserError, match="DenseNet has no stages"):
        create_model("densenet100_k24", features_only=True)
    assert not isinstance(create_model("resnet20", features_only=False), FeatureList)
