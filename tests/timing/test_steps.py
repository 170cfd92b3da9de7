"""What is measured does what its name says."""

from __future__ import annotations

import torch

from stepnet import create_model
from stepnet.timing.steps import batch, forward_pass, gradient, peak_bytes, training_step

MIB = 2**20


def test_a_training_step_moves_the_weights_and_a_forward_pass_does_not() -> None:
    model = create_model("resnet20")
    images, labels = batch(4, 8)
    before = model.head.weight.clone()  # type: ignore[union-attr, operator]
    forward_pass(model, images)()
    gradient(model, images)()
    assert torch.equal(model.head.weight, before)  # type: ignore[arg-type]
    training_step(model, images, labels)()
    assert model.training and not torch.equal(model.head.weight, before)  # type: ignore[arg-type]


def test_the_peak_counts_what_lives_at_one_time() -> None:
    def run() -> None:
        for _ in range(3):  # one after the other: never more than two at a time
            a = torch.zeros(MIB)
            b = a + 1
            del a, b

    assert 8 * MIB <= peak_bytes(run) < 8 * MIB + 100  # a scalar beside them
