"""The example script says what it promises: the conversion changes nothing, the training moves every k."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "convert_timm.py"


@pytest.mark.slow
def test_conversion_keeps_the_accuracy_and_training_moves_k(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("timm")
    runpy.run_path(str(SCRIPT))["main"]()
    told = capsys.readouterr().out
    before, after, further = map(float, re.findall(r"(\d+\.\d)%", told))
    assert before == after
    assert further > 80
    ks = [float(k) for k in re.findall(r"step_k = ([+-]\d\.\d+)", told)]
    assert len(ks) == 4 and all(ks)
