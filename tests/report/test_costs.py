"""The cost of a run's network against the network built."""

from stepnet import create_model
from stepnet.report.costs import cost
from stepnet.training.config import TrainConfig


def test_the_count_is_that_of_the_network_for_the_data() -> None:
    model = create_model("lm_resnet20", num_classes=10, in_channels=1)  # digits are grey
    found = cost(TrainConfig("lm_resnet20"))
    assert found is not None
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert found == cost(TrainConfig("lm_resnet20", seed=5, out="elsewhere"))


def test_without_the_data_set_there_is_none(tmp_path) -> None:
    assert cost(TrainConfig("lm_resnet20", data="cifar10", data_root=str(tmp_path))) is None
