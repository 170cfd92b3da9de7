"""Networks of other libraries by name."""

from __future__ import annotations

import pytest
import torch

import stepnet
from stepnet.conversion import list_foreign, load_foreign
from stepnet.conversion.foreign import is_foreign

pytest.importorskip("torchvision")
pytest.importorskip("timm")


@pytest.mark.parametrize("name", ["timm/resnet18", "torchvision/resnet18", "torchvision/mobilenet_v2"])
@pytest.mark.parametrize("channels", [1, 3])
def test_classes_and_channels_are_as_asked(name: str, channels: int) -> None:
    network = load_foreign(name, num_classes=7, in_channels=channels).eval()
    assert network(torch.randn(1, channels, 32, 32)).shape == (1, 7)


def test_names() -> None:
    assert is_foreign("timm/resnet18") and not is_foreign("resnet18") and not is_foreign("runs/resnet18")
    assert "resnet18" in list_foreign("timm") and "vit_b_16" in list_foreign("torchvision")
    with pytest.raises(stepnet.UserError, match="unknown library 'timn': did you mean 'timm'"):
        list_foreign("timn")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm/resnet19", "unknown timm model 'resnet19': did you mean .*resnet1"),
        ("torchvision/resnet19", "unknown torchvision model 'resnet19'"),
        ("keras/resnet18", "unknown library 'keras'"),
        ("timm", "unknown timm model ''"),
    ],
)
def test_unknown_names_are_told_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(stepnet.UserError, match=message):
        load_foreign(name)
