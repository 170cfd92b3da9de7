"""What a rank of a distributed test runs: FOLDER MODE [STEP].

It trains three networks, since a group of processes outlives a run: `first` takes one step in float64, `text` is a GPT
in float64, `second` has stochastic depth of that mode. Rank 1 is killed at that step of the second, once. With the mode
`sharded` it trains networks that may be in parts: a GPT and a ViT, a converted GPT that is interrupted, and three in a
loop of their own.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parents[1]))

from stepnet.conversion import convert  # noqa: E402
from stepnet.data import get_data  # noqa: E402
from stepnet.nets.gpt import GPT, FeedForward, SelfAttention  # noqa: E402
from stepnet.nets.vit import ViT  # noqa: E402
from stepnet.training import Callback, Recipe, gather, shard, train  # noqa: E402
from training.tiny import tiny_config  # noqa: E402

TEXT = Recipe(epochs=2, epoch_steps=3, batch_size=6, optimizer="adamw", lr=0.01, milestones=(), clip=1.0)


class DieOnce(Callback):
    """Rank 1 dies at a step, the first time that it comes there."""

    def __init__(self, step: int, mark: Path) -> None:
        self.at, self.mark = step, mark

    def step(self, trainer):
        if trainer.progress.step == self.at and os.environ["RANK"] == "1" and not self.mark.exists():
            self.mark.write_text("died")
            os.kill(os.getpid(), 9)


def train_text(out: Path) -> None:
    """Six steps of a GPT under LM, on this file."""
    torch.manual_seed(0)
    data = get_data(__file__, context=8)
    network = GPT(1, 8, "lm", num_classes=data.num_classes, context=8).double()
    train(network, data, TEXT, out=out, quiet=True)


class Layer(nn.Module):
    """A layer of someone else's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.feed_forward = SelfAttention(width, 1), FeedForward(width)

    def forward(self, u):
        u = u + self.attention(u)
        return u + self.feed_forward(u)


def converted(tokens: int, **options) -> nn.Module:
    """Three layers with LM put in."""
    torch.manual_seed(1)
    layers = [nn.Embedding(tokens, 8), *(Layer(8) for _ in range(3)), nn.Linear(8, tokens)]
    network = nn.Sequential(*layers).double()
    return convert(network, "lm", torch.zeros(2, 8, dtype=torch.long), init=0.1, **options)


class Interrupt(Callback):
    """Every rank stops at a step, the first time that it comes there."""

    def __init__(self) -> None:
        self.done = False

    def step(self, trainer):
        if (trainer.progress.epoch, trainer.progress.step) == (1, 2) and not self.done:
            self.done = True
            raise InterruptedError


class DoubleViT(ViT):
    """A ViT in float64, of images in float32."""

    def forward(self, x):
        return super().forward(x.double())


def vit(**options) -> nn.Module:
    torch.manual_seed(3)
    return DoubleViT(2, 8, "lm", patch=4, **options).double()


def own_loop(network: nn.Module, inputs: Tensor, targets: Tensor, out: Path) -> None:
    """Steps of AdamW by hand, a batch each; rank 0 writes the weights."""
    rank, count = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if count > 1:
        shard(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    for x, y in zip(inputs, targets, strict=True):
        own = slice(len(x) * rank // count, len(x) * (rank + 1) // count)
        F.cross_entropy(network(x[own]).flatten(0, -2), y[own].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = gather(network)
    if rank == 0:
        torch.save(weights, out)


def train_sharded(folder: Path) -> None:
    """What one process and two with FSDP have to agree on."""
    train_text(folder / "text")
    data, recipe, stop = get_data(__file__, context=8), TEXT.override({"accumulate": 2}), Interrupt()
    options = {"out": folder / "converted", "checkpoint_steps": 1, "callbacks": [stop], "quiet": True}
    with suppress(InterruptedError):
        train(converted(data.num_classes), data, recipe, **options)
    assert stop.done
    train(converted(data.num_classes), data, recipe, **options)
    images = get_data("digits")
    train(vit(in_channels=images.in_channels), images, TEXT, out=folder / "vit", quiet=True)
    torch.manual_seed(2)
    tokens, photos = torch.randint(11, (4, 4, 9)), torch.randn(4, 4, 3, 8, 8)
    own_loop(
        GPT(2, 8, "hyper", num_classes=11, context=8).double(), tokens[..., :-1], tokens[..., 1:], folder / "gpt.pt"
    )
    own_loop(converted(11), tokens[..., :-1], tokens[..., 1:], folder / "converted.pt")
    own_loop(vit(num_classes=11), photos, tokens[..., 0], folder / "vit.pt")


def main(folder: Path, mode: str, dies_at: str = "") -> None:
    if mode == "sharded":
        train_sharded(folder)
        return
    once = {"epochs": 1, "batch_size": 1500, "milestones": (), "weight_decay": 0.0}
    train(tiny_config(folder / "first", model="tiny_double", freeze_bn=True, recipe=once))
    train_text(folder / "text")
    callbacks = [DieOnce(int(dies_at), folder / "died")] if dies_at else []
    recipe = {"stochastic_depth": 0.5, "stochastic_mode": mode}
    train(tiny_config(folder / "second", freeze_bn=True, checkpoint_steps=2, recipe=recipe), callbacks=callbacks)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
