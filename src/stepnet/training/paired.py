"""Two networks compared seed by seed: the same initial weights and batches, so that only their difference varies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PairedDifferences:
    """Figures of one network minus those of another, one for each seed that both have."""

    by_seed: dict[int, float]

    @classmethod
    def of(cls, one: Mapping[int, float], other: Mapping[int, float]) -> PairedDifferences:
        """From the figure of each seed, for both; a pair with a figure that is no number does not count."""
        gaps = {seed: one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())}
        return cls({seed: gap for seed, gap in gaps.items() if math.isfinite(gap)})

    def __len__(self) -> int:
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        """`d`, the mean difference; NaN without a pair."""
        return statistics.fmean(self.by_seed.values()) if self.by_seed else math.nan

    @property
    def standard_error(self) -> float:
        """`s / sqrt(n)`; NaN below two pairs."""
        return statistics.stdev(self.by_seed.values()) / math.sqrt(len(self)) if len(self) > 1 else math.nan

    @property
    def half_width(self) -> float:
        """Half of Student's 95 % interval: `t_{0.975, n-1} s / sqrt(n)`; NaN below two pairs."""
        return self.half_width_among(1)

    def half_width_among(self, comparisons: int) -> float:
        """The same where so many comparisons are made at once, by Bonferroni's correction: 5 % for all of them."""
        from scipy import stats  # slow to import

        level = 1 - 0.025 / comparisons
        return float(stats.t.ppf(level, len(self) - 1)) * self.standard_error if len(self) > 1 else math.nan

    @property
    def signs(self) -> tuple[int, int]:
        """In how many pairs the first figure is the smaller one, and in how many the larger."""
        gaps = self.by_seed.values()
        return sum(gap < 0 for gap in gaps), sum(gap > 0 for gap in gaps)

    def __str__(self) -> str:
        return self.show()

    def show(self, digits: int = 2) -> str:
        """`-0.16 ± 0.20 (100 pairs)`."""
        if len(self) < 2:
            return f"{self.mean:+.{digits}f}" if self.by_seed else ""
        return f"{self.mean:+.{digits}f} ± {self.half_width:.{digits}f} ({len(self)} pairs)"
