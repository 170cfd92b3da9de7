"""Lightning drives a network of ours and a converted one.

python examples/lightning_module.py [STEPS]
"""

from __future__ import annotations

import logging
import sys

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import stepnet
from stepnet.conversion import load_foreign
from stepnet.data import get_data
from stepnet.extras import import_extra

import_extra("torchvision")  # beside a torch that it was not built for, torchmetrics could not import it
import lightning  # noqa: E402


class Classifier(lightning.LightningModule):
    """Any network that gives logits."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.network(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)  # no weight decay, which would pull k back to 0


def main(steps: int = 30) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(0)
    data = get_data("digits")
    images, labels = data.normalise(data.train.images), torch.from_numpy(data.train.labels)
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
    ours = stepnet.create_model("lm_resnet20", in_channels=1)
    theirs = load_foreign("timm/resnet18", num_classes=10, in_channels=1)
    converted = stepnet.convert(theirs, "lm", torch.zeros(2, 1, 8, 8), init="identity")
    for name, network in {"lm_resnet20": ours, "timm/resnet18, converted": converted}.items():
        before = stepnet.coefficients(network)
        trainer = lightning.Trainer(
            max_steps=steps, max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Classifier(network), loader)
        with torch.no_grad():
            loss = float(F.cross_entropy(network.eval()(images), labels))
        moved = sum(k != before[layer] for layer, k in stepnet.coefficients(network).items())
        print(f"{name}: loss {loss:.2f} after {steps} steps, {moved} of {len(before)} k moved")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
