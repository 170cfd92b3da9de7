"""The harness: interleaving, quartiles, ratios within a repetition, what is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from stepnet.timing.harness import Row, Spread, compare, growth, interleave, write_rows


class Clock:
    """Time that passes only when a variant says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def takes(self, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.now += seconds

        return run


def test_variants_alternate_and_the_order_rotates() -> None:
    ran: list[str] = []
    seconds = interleave({name: lambda name=name: ran.append(name) for name in "abc"}, repeats=3)  # type: ignore[misc]
    assert "".join(ran) == "cababcbcacab"  # the first three warm up
    assert [len(values) for values in seconds.values()] == [3, 3, 3]


def test_ratios_are_formed_within_a_repetition() -> None:
    clock = Clock()
    ratios, control = compare({"twice": clock.takes(2.0)}, clock.takes(1.0), 5, clock)
    assert ratios["twice"] == Spread(2.0, 2.0, 2.0)
    assert control == Spread(1.0, 1.0, 1.0)


def test_a_variant_may_time_itself() -> None:
    clock = Clock()
    seconds = interleave({"told": lambda: 7.0, "clocked": clock.takes(2.0)}, 2, clock)
    assert seconds == {"told": [7.0, 7.0], "clocked": [2.0, 2.0]}


def test_the_exponent_of_a_power_law_is_found() -> None:
    row = growth("cost", [20, 110, 1202], [3 * size**1.5 for size in (20, 110, 1202)], "s", "≤ 1")
    assert abs(row.value.median - 1.5) < 1e-12
    assert row.note == "(268, 3,461, 125,020 s at 20, 110, 1202)"


def test_quartiles() -> None:
    assert Spread.of([5.0, 1.0, 2.0, 4.0, 3.0]) == Spread(3.0, 2.0, 4.0)
    assert str(Spread.of([1.0, 1.5, 2.0])) == "1.5 (1.25–1.75)"
    assert str(Spread.exact(1234.5)) == "1,234"


def test_sections_are_written_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    write_rows(path, "first", [Row("a", Spread.exact(1.0))], "python first.py")
    write_rows(path, "second", [Row("b", Spread.exact(2.0), control=Spread.exact(1.0))], "python second.py")
    known = json.loads(path.read_text())
    assert [section["rows"][0]["what"] for section in known.values()] == ["a", "b"]
    assert known["second"]["rows"][0]["control"] == {"median": 1.0, "lower": 1.0, "upper": 1.0}
    assert known["first"]["machine"]["versions"]["torch"] and known["first"]["command"] == "python first.py"
