"""Where roots sit: critical values exact, the root condition decided."""

import pytest
import sympy

from stepnet.analysis.locus import between, bounded, critical_values, mirror
from stepnet.analysis.symbols import zeta

x = sympy.Symbol("x", real=True)


def test_a_root_that_crosses_the_circle_is_found_exactly():
    assert critical_values(zeta - x**2 + 1, x) == [-sympy.sqrt(2), 0, sympy.sqrt(2)]
    assert critical_values(zeta - 1 - sympy.I * x, x) == [0]  # |1 + i x| = 1 at 0 only


def test_two_roots_that_meet_on_the_circle_are_found():
    assert critical_values(zeta**2 - (2 - x) * zeta + 1, x) == [0, 4]


def test_the_mirror_image_has_the_mirrored_roots():
    assert sympy.expand(mirror(zeta - 2 - sympy.I * x, x) - (1 - (2 - sympy.I * x) * zeta)) == 0


@pytest.mark.parametrize(
    ("q", "times", "wanted"),
    [
        (zeta - 1, 1, True),
        ((zeta - 1) ** 2, 1, False),
        ((zeta - 1) ** 2, 2, True),
        ((zeta - sympy.Rational(1, 2)) ** 3, 1, True),
        (zeta**2 + 1, 1, True),
        ((zeta**2 + 1) ** 2, 1, False),
        (zeta - 1 - sympy.Rational(1, 10**9), 1, False),
        (zeta - 1 + sympy.Rational(1, 10**9), 1, True),
        (zeta**2 - 2 * sympy.Float(1, 50) * zeta + 1, 1, False),  # a double root that only digits show
    ],
)
def test_the_root_condition(q, times, wanted):
    assert bounded(q, times) is wanted


def test_one_sample_in_every_gap():
    values = [sympy.Integer(-1), sympy.sqrt(2), sympy.Rational(142, 100)]
    samples = between(values)
    assert len(samples) == 4 and all(s.is_Rational for s in samples)
    assert samples[0] < values[0] < samples[1] < values[1] < samples[2] < values[2] < samples[3]
    assert between([]) == [0]
