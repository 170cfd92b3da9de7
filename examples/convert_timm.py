"""Train a timm network on digits, put the LM scheme into it without changing what it computes, and train on.

    python examples/convert_timm.py [MODEL]

It prints the accuracy before and after the conversion, which agree because `k = 0` is the network itself, then the
coefficients `k_n` that the further training learned.
"""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepnet
from stepnet.conversion import load_foreign
from stepnet.data import get_data

EPOCHS, BATCH = 4, 64


def digits() -> list[tuple[Tensor, Tensor]]:
    """Training and test images, enlarged fourfold, with their labels."""
    data = get_data("digits")
    return [
        (F.interpolate(data.normalise(side.images), size=32, mode="bilinear"), torch.from_numpy(side.labels))
        for side in (data.train, data.test)
    ]


def train(network: nn.Module, images: Tensor, labels: Tensor, rate: float) -> None:
    network.train()
    ks = [p for name, p in network.named_parameters() if "step_k" in name]  # weight decay would pull them back to 0
    others = [p for name, p in network.named_parameters() if "step_k" not in name]
    optimizer = torch.optim.AdamW([{"params": others}, {"params": ks, "weight_decay": 0.0}], lr=rate)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()


@torch.no_grad()
def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    return float((network.eval()(images).argmax(1) == labels).float().mean())


def main(name: str = "timm/regnetx_002") -> None:
    torch.manual_seed(0)
    training, test = digits()

    network = load_foreign(name, num_classes=10, in_channels=1)
    train(network, *training, rate=4e-3)
    print(f"{name}: {accuracy(network, *test):.1%} of the test digits")

    converted = stepnet.convert(network, "lm", example=training[0][:2], init="identity", verbose=True)
    print(f"converted, k = 0: {accuracy(converted, *test):.1%}")
    train(converted, *training, rate=2e-3)
    print(f"trained further: {accuracy(converted, *test):.1%}")
    for layer, k in stepnet.coefficients(converted).items():
        print(f"  {layer} = {k:+.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
