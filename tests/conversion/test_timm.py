"""Families of timm, one small member each: what converts is exact, and the table of all families is true of them."""

from __future__ import annotations

import re

import pytest
from tests.conversion.timm_families import TABLE, names, row, walk


@pytest.mark.slow
def test_every_fourth_family_converts_as_the_table_says() -> None:
    """All of them take minutes: `python -m tests.conversion.timm_families`, which also writes the table."""
    pytest.importorskip("timm")
    table = TABLE.read_text().splitlines()
    start = next(n for n, line in enumerate(table) if line.startswith("| ---")) + 1
    assert [line.split()[1] for line in table[start:]] == names()
    for family in walk(names()[::4]):
        assert row(family) in table, "out of date: run python -m tests.conversion.timm_families"


def test_nine_in_ten_residual_families_convert_exactly() -> None:
    exact, residual = map(int, re.search(r"(\d+) of (\d+) residual families convert", TABLE.read_text()).groups())
    assert exact >= 0.9 * residual
