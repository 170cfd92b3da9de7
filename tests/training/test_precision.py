import subprocess

import pytest

from stepnet import UserError
from stepnet.training import precision


@pytest.fixture(autouse=True)
def forget():
    precision._bf16_on_cpu.cache_clear()
    yield
    precision._bf16_on_cpu.cache_clear()


@pytest.mark.parametrize("code", [-4, 1])  # an illegal instruction; an exception
def test_bf16_is_refused_where_the_trial_dies(monkeypatch, code):
    monkeypatch.setattr(precision.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(precision.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, code))
    with pytest.raises(UserError, match="bfloat16 convolution fails on this CPU; use --precision fp32"):
        precision.check_precision("bf16")


def test_bf16_is_tried_in_a_child_and_this_process_lives():
    try:
        precision.check_precision("bf16")
    except UserError as error:
        assert "bfloat16" in str(error)
    precision.check_precision("fp32")
