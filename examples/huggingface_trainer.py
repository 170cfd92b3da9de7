"""Hugging Face's Trainer drives a network of ours and a converted one.

    python examples/huggingface_trainer.py [STEPS]

The Trainer wants the loss from the network's own forward, which a wrapper of six lines gives; weights, `k` and
checkpoints are the Trainer's business from there on.
"""

from __future__ import annotations

import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepnet
from stepnet.conversion import load_foreign
from stepnet.data import get_data
from stepnet.extras import import_extra

transformers = import_extra("transformers")


class WithLoss(nn.Module):
    """What the Trainer calls: images and labels in, loss and logits out."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.network(images)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def digits() -> list[dict[str, Tensor]]:
    data = get_data("digits")
    images = data.normalise(data.train.images)
    return [{"images": x, "labels": torch.tensor(y)} for x, y in zip(images, data.train.labels, strict=True)]


def main(steps: int = 30) -> None:
    torch.manual_seed(0)
    ours = stepnet.create_model("lm_resnet20", in_channels=1)
    theirs = load_foreign("timm/resnet18", num_classes=10, in_channels=1)
    converted = stepnet.convert(theirs, "lm", torch.zeros(2, 1, 8, 8), init="identity")
    for name, network in {"lm_resnet20": ours, "timm/resnet18, converted": converted}.items():
        before = stepnet.coefficients(network)
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                folder, max_steps=steps, per_device_train_batch_size=64, learning_rate=1e-3, report_to=[],
                remove_unused_columns=False, disable_tqdm=True, save_strategy="no", use_cpu=True,
            )  # fmt: skip
            done = transformers.Trainer(WithLoss(network), arguments, train_dataset=digits()).train()
        moved = sum(k != before[layer] for layer, k in stepnet.coefficients(network).items())
        print(f"{name}: loss {done.training_loss:.2f} over {steps} steps, {moved} of {len(before)} k moved")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
