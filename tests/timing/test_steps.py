"""What is timed does what its name says."""

from __future__ import annotations

import torch

from stepnet import create_model
from stepnet.timing.steps import batch, forward_pass, gradient, training_step


def test_a_training_step_moves_the_weights_and_a_forward_pass_does_not() -> None:
    model = create_model("resnet20")
    images, labels = batch(4, 8)
    before = model.head.weight.clone()  # type: ignore[union-attr, operator]
    forward_pass(model, images)()
    gradient(model, images)()
    assert torch.equal(model.head.weight, before)  # type: ignore[arg-type]
    training_step(model, images, labels)()
    assert model.training and not torch.equal(model.head.weight, before)  # type: ignore[arg-type]
