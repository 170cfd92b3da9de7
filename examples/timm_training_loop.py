"""timm's own parts (optimiser, schedule, average of weights, checkpoints) train a network of ours and a converted one.

    python examples/timm_training_loop.py [STEPS]

This is the loop of timm's training script without its flags. timm's optimisers ask a network what is spared from weight
decay (`no_weight_decay`); ours name their norms, biases and `k`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F

import stepnet
from stepnet.conversion import load_foreign
from stepnet.data import get_data, training_batches
from stepnet.extras import import_extra

import_extra("timm")
from timm.models import load_checkpoint  # noqa: E402
from timm.optim import create_optimizer_v2  # noqa: E402
from timm.scheduler import CosineLRScheduler  # noqa: E402
from timm.utils import CheckpointSaver, ModelEmaV3  # noqa: E402


def train(name: str, network: torch.nn.Module, steps: int) -> None:
    optimizer = create_optimizer_v2(network, opt="adamw", lr=2e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=steps, t_in_epochs=False)
    average = ModelEmaV3(network, decay=0.9)
    before = stepnet.coefficients(network)
    batches = training_batches(get_data("digits"), 64, seed=0).epoch(0)
    for step, (images, labels) in zip(range(steps), batches, strict=False):
        loss = F.cross_entropy(network.train()(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(network, step=step)
        schedule.step_update(step + 1)
    with tempfile.TemporaryDirectory() as folder:
        CheckpointSaver(network, optimizer, checkpoint_dir=folder).save_checkpoint(0, metric=0.0)
        load_checkpoint(network, str(Path(folder) / "last.pth.tar"))  # by timm, with k among the weights
    moved = sum(k != before[layer] for layer, k in stepnet.coefficients(network).items())
    print(f"{name}: loss {loss.item():.2f} after {steps} steps, {moved} of {len(before)} k moved")


def main(steps: int = 20) -> None:
    torch.manual_seed(0)
    ours = stepnet.create_model("lm_resnet20", in_channels=1)
    theirs = load_foreign("timm/resnet18", num_classes=10, in_channels=1)
    converted = stepnet.convert(theirs, "lm", torch.zeros(2, 1, 8, 8), init="identity")
    for name, network in {"lm_resnet20": ours, "timm/resnet18, converted": converted}.items():
        train(name, network, steps)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
