"""The overhead of the library: LM-ResNet against the same network written by hand.

Same layers, arithmetic and outputs; the weights share memory, since their location changes the time by up to 3 %.
The last rows are a converted ResNet-18 of torchvision against itself. The shorter the kernels (one small image; on a
GPU, any batch), the more of the time is Python. Passes are timed in a loop: the first one, after other code, is not
counted.

python benchmarks/by_hand.py [--repeats 200]
"""

import copy
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from script import measure
from torch import Tensor, nn

from stepnet.conversion import convert
from stepnet.extras import import_extra
from stepnet.nets import create_model
from stepnet.timing.harness import Row, compared, steady_clock
from stepnet.timing.steps import batch, training_step

SIZES = {
    "batch 1, 8x8": (1, 8, "≤ 1.10"),
    "batch 1, 32x32": (1, 32, "≤ 1.05"),
    "batch 64, 32x32": (64, 32, "≤ 1.02"),
    "batch 128, 32x32": (128, 32, "≤ 1.02"),
}
DEPTHS = (20, 110)
TRAINING_BATCH = 128  # the paper's
PASSES = 5  # of one image, in a loop


class Block(nn.Module):
    """`f`: (bn, relu, conv) twice."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)

    def forward(self, u: Tensor) -> Tensor:
        u = self.conv1(F.relu(self.bn1(u)))
        return self.conv2(F.relu(self.bn2(u)))


class Stage(nn.Module):
    """`u_{n+1} = u_n + k_n (u_{n-1} - u_n) + f(u_n)`."""

    def __init__(self, inputs: int, outputs: int, blocks: int) -> None:
        super().__init__()
        self.extra = outputs - inputs
        self.transition = Block(inputs, outputs, 2) if self.extra else None
        self.blocks = nn.ModuleList(Block(outputs, outputs) for _ in range(blocks - bool(self.extra)))
        self.k = nn.Parameter(torch.zeros(blocks - 1))

    def forward(self, u: Tensor) -> Tensor:
        ks, blocks = iter(self.k.unbind()), iter(self.blocks)
        if self.transition is None:
            past, u = u, u + next(blocks)(u)
        else:
            past = F.pad(u[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.extra))
            u = past + self.transition(u)
        for block, k in zip(blocks, ks, strict=True):
            past, u = u, u.lerp(past, k) + block(u)
        return u


class LMResNet(nn.Module):
    """LM-ResNet of `6 blocks + 2` layers for CIFAR."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.stages = nn.Sequential(Stage(16, 16, blocks), Stage(16, 32, blocks), Stage(32, 64, blocks))
        self.norm = nn.BatchNorm2d(64)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        u = F.relu(self.norm(self.stages(self.stem(x))))
        return self.head(F.adaptive_avg_pool2d(u, 1).flatten(1))


NAMES = {"transition.block.": "transition.", "norms.0": "bn1", "norms.1": "bn2", "convs.0": "conv1", "convs.1": "conv2"}


def by_hand(ours: nn.Module, depth: int) -> LMResNet:
    """Return the handwritten network with the tensors of ours."""
    network, weights = LMResNet(depth).eval(), {}
    for name, value in ours.state_dict().items():
        for ours_name, other in NAMES.items():
            name = name.replace(ours_name, other)
        weights[name] = value
    network.load_state_dict(weights, assign=True)
    return network


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    for depth in DEPTHS[:1] if quick else DEPTHS:
        torch.manual_seed(0)
        ours = create_model(f"lm_resnet{depth}").eval()
        theirs, copied = by_hand(ours, depth), by_hand(ours, depth)
        for what, (size, pixels, target) in SIZES.items():
            images, _ = batch(size, pixels)
            with torch.inference_mode():
                assert torch.equal(ours(images), theirs(images))
            count = repeats if size == 1 else max(1, repeats // 10)
            name = f"forward, LM-ResNet-{depth} / by hand, {what}"
            yield compared(name, [_passes(network, images) for network in (ours, theirs, copied)], count, target)
        if depth == DEPTHS[0]:
            yield _training(depth, max(1, repeats // 10))
    original, copied = (_resnet18() for _ in range(2))
    for pixels in (32, 224):
        images, _ = batch(1, pixels)
        converted = convert(original, "lm", images)
        for network in (converted, copied):
            network.load_state_dict(original.state_dict(), assign=True)
        what = f"forward, ResNet-18 converted / original, batch 1, {pixels}x{pixels}"
        count = repeats if pixels == 32 else max(1, repeats // 5)
        passes = [_passes(network, images) for network in (converted, original, copied)]
        yield compared(what, passes, count, "≤ 1.05")


def _training(depth: int, repeats: int) -> Row:
    """Compare training steps; the networks do not share weights."""
    what = f"training step, LM-ResNet-{depth} / by hand, batch {TRAINING_BATCH}, 32x32"
    torch.manual_seed(0)
    ours = create_model(f"lm_resnet{depth}")
    theirs, copied = (by_hand(copy.deepcopy(ours), depth) for _ in range(2))
    steps = [training_step(network, *batch(TRAINING_BATCH)) for network in (ours, theirs, copied)]
    return compared(what, steps, repeats, "≤ 1.02")


def _passes(network: nn.Module, images: Tensor) -> Callable[[], float]:
    clock, count = steady_clock(), PASSES if len(images) == 1 else 1

    def timed() -> float:
        with torch.inference_mode():
            network(images)
            start = clock()
            for _ in range(count):
                network(images)
            return clock() - start

    return timed


def _resnet18() -> nn.Module:
    torch.manual_seed(0)
    return import_extra("torchvision").models.resnet18().eval()


if __name__ == "__main__":
    measure("LM against the same network by hand", __doc__, rows, repeats=200)
