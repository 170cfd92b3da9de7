"""A network for the features of its stages: what detection and segmentation build on."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from stepnet.nets.residual import FeatureInfo, Network


class FeatureList(nn.Module):
    """timm's `features_only`: called with images, it gives the list of the stages' last states `u_N`.

    What comes after the last stage has no part in them, so the classifier goes and the last norm gets no gradient.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.feature_info: list[FeatureInfo] = network.chosen_features()
        network.reset_classifier(0)
        if isinstance(norm := getattr(network, "norm", None), nn.Module):
            norm.requires_grad_(False)
        self.network = network

    def forward(self, x: Tensor) -> list[Tensor]:
        return cast(list[Tensor], self.network.forward_intermediates(x, intermediates_only=True))
