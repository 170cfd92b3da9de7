import subprocess

import pytest

from stepnet import UserError
from stepnet.training import machine


@pytest.fixture(autouse=True)
def forget():
    machine._bf16_on_cpu.cache_clear()
    yield
    machine._bf16_on_cpu.cache_clear()


@pytest.mark.parametrize("code", [-4, 1])  # an illegal instruction; an exception
def test_bf16_is_refused_where_the_trial_dies(monkeypatch, code):
    monkeypatch.setattr(machine.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(machine.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, code))
    with pytest.raises(UserError, match="bfloat16 convolution fails on this CPU; use --precision fp32"):
        machine.check_precision("bf16")


def test_bf16_is_tried_in_a_child_and_this_process_lives():
    try:
        machine.check_precision("bf16")
    except UserError as error:
        assert "bfloat16" in str(error)
    machine.check_precision("fp32")
