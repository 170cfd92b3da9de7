"""Paired differences against scipy's own t-interval."""

import math

import numpy as np
import pytest
from scipy import stats

from stepnet.training.histories import PairedDifferences, holm


def test_the_interval_is_scipys() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(8, 1, 7), rng.normal(8.3, 1, 7)
    gaps = PairedDifferences.of(dict(enumerate(one)), dict(enumerate(other)))
    low, high = stats.ttest_rel(one, other).confidence_interval(0.95)
    assert math.isclose(gaps.mean - gaps.half_width, low) and math.isclose(gaps.mean + gaps.half_width, high)


def test_several_comparisons_widen_the_interval() -> None:
    gaps = PairedDifferences({0: -0.5, 1: -0.7, 2: -0.3, 3: -0.1})
    interval = stats.ttest_1samp(list(gaps.by_seed.values()), 0).confidence_interval(1 - 0.05 / 4)
    assert math.isclose(gaps.mean + gaps.half_width_among(4), interval.high)


def test_only_seeds_that_both_have_count() -> None:
    one, other = {0: 1.0, 1: 2.0, 2: math.nan, 5: 3.0, 6: 4.0}, {1: 2.5, 2: 1.0, 5: 2.0, 6: 4.0, 7: 0.0}
    gaps = PairedDifferences.of(one, other)
    assert gaps.by_seed == {1: -0.5, 5: 1.0, 6: 0.0}
    assert gaps.signs == (1, 1)  # neither is lower with seed 6


def test_one_pair_has_no_interval_and_none_no_mean() -> None:
    assert math.isnan(PairedDifferences({3: 0.5}).half_width) and str(PairedDifferences({3: 0.5})) == "+0.50"
    assert str(PairedDifferences({3: 0.5, 4: 0.7})) == "+0.60 ± 1.27 (2 pairs)"  # t = 12.7 at one degree of freedom
    assert math.isnan(PairedDifferences({}).mean) and str(PairedDifferences({})) == ""


@pytest.mark.parametrize(("shift", "side"), [(-2.0, -1), (-1.0, 0), (1.0, 0), (2.0, 1)])
def test_the_side_of_a_threshold_is_that_of_the_whole_interval(shift: float, side: int) -> None:
    gaps = PairedDifferences({seed: 0.3 + gap for seed, gap in enumerate((-1.0, 0.0, 1.0, 0.0))})  # half width 1.30
    threshold = gaps.mean - shift * gaps.half_width / 1.5
    assert gaps.side_of(threshold) == side
    assert gaps.side_of(threshold, comparisons=5) == 0  # whose interval is 1.9 times as wide
    assert PairedDifferences({0: 5.0}).side_of(0) == 0  # one pair has no interval


def test_differences_of_records() -> None:
    one, other = {0: {"loss": 1.0}, 1: {"loss": 2.0}}, {1: {"loss": 1.5}, 2: {"loss": 0.0}}
    assert PairedDifferences.between(one, other, "loss").by_seed == {1: 0.5}


def test_the_p_value_is_scipys() -> None:
    values = [-0.5, -0.7, -0.3, 0.1]
    gaps = PairedDifferences(dict(enumerate(values)))
    assert math.isclose(gaps.p_value, stats.ttest_1samp(values, 0).pvalue)
    assert math.isnan(PairedDifferences({0: 1.0}).p_value)
    assert [PairedDifferences({0: gap, 1: gap}).p_value for gap in (0.0, 1.0)] == [1.0, 0.0]


def test_holms_correction() -> None:
    """The example of Holm's rule by hand: 4 x 0.005, 3 x 0.01, 2 x 0.03, and 0.04 raised to the one before it."""
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([math.nan, 0.02])[1] == 0.02 and math.isnan(holm([math.nan, 0.02])[0])
