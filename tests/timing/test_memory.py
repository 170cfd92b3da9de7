"""The peak of live tensors, counted from torch's own allocations."""

from __future__ import annotations

import torch

from stepnet.timing.memory import peak_bytes

MIB = 2**20


def test_the_peak_counts_what_lives_at_one_time() -> None:
    def run() -> None:
        for _ in range(3):  # one after the other: never more than two at a time
            a = torch.zeros(MIB)
            b = a + 1
            del a, b

    assert 8 * MIB <= peak_bytes(run) < 8 * MIB + 100  # a scalar beside them
