"""Losses and errors are summed on the device: nobody waits in a step, and no reading changes what is found."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stepnet.data import Data, ImageSet
from stepnet.training import scores, train
from stepnet.training.processes import Processes
from stepnet.training.tasks import Classification
from training.runs import assert_same_run
from training.tiny import tiny_config

IMAGES = ImageSet(np.zeros((1, 2, 2, 1), np.uint8), np.zeros(1, np.int64), tuple("abcdefghi"))
NINE = Classification(Data("nine", IMAGES, IMAGES))


def test_a_batch_is_scored_by_loss_error_and_top_5():
    torch.manual_seed(0)
    logits, labels = torch.randn(40, 9), torch.randint(9, (40,))
    found = scores.evaluate_batch(nn.Identity(), NINE, logits, labels)
    loss, wrong, missed = (float(value) for value in found.values())
    order = (-logits).argsort(1).tolist()
    assert loss == pytest.approx(float(F.cross_entropy(logits, labels, reduction="sum")))
    assert wrong == sum(row[0] != label for row, label in zip(order, labels.tolist(), strict=True))
    assert missed == sum(label not in row[:5] for row, label in zip(order, labels.tolist(), strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_loss_is_taken_in_single_precision_at_least(dtype):
    torch.manual_seed(0)
    logits, labels = torch.randn(40, 9, dtype=dtype), torch.randint(9, (40,))
    wide = logits.double()
    by_hand = (wide.logsumexp(1) - wide[torch.arange(40), labels]).sum()
    loss = scores.evaluate_batch(nn.Identity(), NINE, logits, labels)["loss"]
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-14 if dtype == torch.float64 else 1e-6)


@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_readings_are_few_and_change_no_bit(tmp_path, monkeypatch, seconds):
    reads = []
    monkeypatch.setattr(Processes, "sum", lambda self, values: reads.append(values) or values.tolist())
    monkeypatch.setattr(scores, "SECONDS_BETWEEN_READINGS", seconds)
    run = train(tiny_config(tmp_path / "a", model="tiniest"))
    # With the longest interval an epoch of 6 steps reads after its first step and at its end, then evaluates.
    assert len(reads) == 2 * 3 if seconds else len(reads) > 2 * 6
    monkeypatch.undo()
    assert_same_run(run, train(tiny_config(tmp_path / "b", model="tiniest")))
