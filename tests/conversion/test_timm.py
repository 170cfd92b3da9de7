"""Every family of timm, one small member each: what converts is exact, and at least nine in ten residual ones do."""

from __future__ import annotations

import pytest
from tests.conversion.timm_families import TABLE, share, table, walk


@pytest.mark.slow
def test_nine_in_ten_residual_families_convert_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("timm")
    families = walk()
    exact, residual = share(families)
    left_out = [str(family) for family in families if family.residual and family.conversion is None]
    with capsys.disabled():
        print(f"\ntimm: {exact} of {residual} residual families convert exactly; left out:", *left_out, sep="\n  ")
    assert exact >= 0.9 * residual
    assert TABLE.read_text() == table(families), "out of date: run python -m tests.conversion.timm_families"
