"""Paired differences against scipy's own t-interval."""

import math

import numpy as np
from scipy import stats

from stepnet.training.histories import PairedDifferences, holm


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


def test_the_p_value_is_scipys() -> None:
    values = [-0.5, -0.7, -0.3, 0.1]
    found = PairedDifferences(dict(enumerate(values)))
    assert math.isclose(found.p_value, stats.ttest_1samp(values, 0).pvalue)
    assert math.isnan(PairedDifferences({0: 1.0}).p_value)
    assert [PairedDifferences({0: gap, 1: gap}).p_value for gap in (0.0, 1.0)] == [1.0, 0.0]


def test_holms_correction() -> None:
    """The example of Holm's rule by hand: 4 x 0.005, 3 x 0.01, 2 x 0.03, and 0.04 raised to the one before it."""
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([math.nan, 0.02])[1] == 0.02 and math.isnan(holm([math.nan, 0.02])[0])
