"""Paired differences against scipy's own t-interval."""

import math

import numpy as np
from scipy import stats

from stepnet.training.histories import PairedDifferences


def test_the_interval_is_scipys() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(8, 1, 7), rng.normal(8.3, 1, 7)
    found = PairedDifferences.of(dict(enumerate(one)), dict(enumerate(other)))
    low, high = stats.ttest_rel(one, other).confidence_interval(0.95)
    assert math.isclose(found.mean - found.half_width, low) and math.isclose(found.mean + found.half_width, high)


def test_several_comparisons_widen_the_interval() -> None:
    found = PairedDifferences({0: -0.5, 1: -0.7, 2: -0.3, 3: -0.1})
    interval = stats.ttest_1samp(list(found.by_seed.values()), 0).confidence_interval(1 - 0.05 / 4)
    assert math.isclose(found.mean + found.half_width_among(4), interval.high)


def test_only_seeds_that_both_have_count() -> None:
    one, other = {0: 1.0, 1: 2.0, 2: math.nan, 5: 3.0, 6: 4.0}, {1: 2.5, 2: 1.0, 5: 2.0, 6: 4.0, 7: 0.0}
    found = PairedDifferences.of(one, other)
    assert found.by_seed == {1: -0.5, 5: 1.0, 6: 0.0}
    assert found.signs == (1, 1)  # neither is lower with seed 6


def test_one_pair_has_no_interval_and_none_no_mean() -> None:
    assert math.isnan(PairedDifferences({3: 0.5}).half_width) and str(PairedDifferences({3: 0.5})) == "+0.50"
    assert str(PairedDifferences({3: 0.5, 4: 0.7})) == "+0.60 ± 1.27 (2 pairs)"  # t = 12.7 at one degree of freedom
    assert math.isnan(PairedDifferences({}).mean) and str(PairedDifferences({})) == ""
