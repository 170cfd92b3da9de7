"""Train a timm network on digits, put the LM scheme into it without changing what it computes, and train on.

    python examples/convert_timm.py [MODEL]

It prints the accuracy before and after the conversion, which agree because `k = 0` is the network itself, then the
coefficients `k_n` that the further training learned.
"""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import stepnet
from stepnet.conversion import load_foreign

EPOCHS, BATCH, TEST = 4, 64, 300


def digits() -> tuple[Tensor, Tensor]:
    """The images, enlarged fourfold, and their labels."""
    bunch = load_digits()
    images = torch.as_tensor(bunch.images, dtype=torch.float32)[:, None] / 8 - 1
    return F.interpolate(images, size=32, mode="bilinear"), torch.as_tensor(bunch.target)


def train(network: nn.Module, images: Tensor, labels: Tensor, rate: float) -> None:
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate)
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
    images, labels = digits()
    training, test = (images[:-TEST], labels[:-TEST]), (images[-TEST:], labels[-TEST:])

    network = load_foreign(name, num_classes=10, in_channels=1)
    train(network, *training, rate=4e-3)
    print(f"{name}: {accuracy(network, *test):.1%} of the test digits")

    converted = stepnet.convert(network, "lm", example=images[:2], init="identity", verbose=True)
    print(f"converted, k = 0: {accuracy(converted, *test):.1%}")
    train(converted, *training, rate=2e-3)
    print(f"trained further: {accuracy(converted, *test):.1%}")
    for layer, k in stepnet.coefficients(converted).items():
        print(f"  {layer} = {k:+.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
