"""The example script, with one epoch: the conversion changes nothing, the training moves every k."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "convert_timm.py"


@pytest.mark.slow
def test_conversion_keeps_the_accuracy_and_training_moves_k(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("timm")
    spec = importlib.util.spec_from_file_location("convert_timm", SCRIPT)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.EPOCHS = 1
    example.main()
    told = capsys.readouterr().out
    before, after, _ = map(float, re.findall(r"(\d+\.\d)%", told))
    assert before == after
    ks = [float(k) for k in re.findall(r"step_k = ([+-]\d\.\d+)", told)]
    assert len(ks) == 9 and all(ks)
