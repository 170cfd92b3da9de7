"""Plain values are held to types; what does not fit is one line that names the place."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest

from stepnet import UserError
from stepnet.schema import at_least, check_fields, read_as


@dataclass
class Inner:
    epochs: Annotated[int, at_least(1)] = 1
    word: Literal["a", "b"] = "a"
    marks: tuple[int, ...] = ()


@dataclass
class Outer:
    rate: float
    inner: Inner = field(default_factory=Inner)

    def __post_init__(self):
        check_fields(self)


def test_values_become_the_dataclass_and_missing_ones_its_defaults():
    assert read_as(Outer, {"rate": 1, "inner": {"marks": [1, 2]}}, "x") == Outer(1.0, Inner(marks=(1, 2)))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "file: expected object, got array"),
        (None, "file: expected object, got null"),
        ({}, "file: object missing required field rate"),
        ({"rate": "fast"}, "file: rate: expected float, got str"),
        ({"rate": 1.0, "inner": {"epochs": float("inf")}}, "file: inner.epochs: expected int, got float"),
        ({"rate": 1.0, "inner": {"epochs": 0}}, "file: inner.epochs: expected int >= 1"),
        ({"rate": 1.0, "inner": {"word": "zzz"}}, "file: inner.word: invalid enum value 'zzz'"),
        ({"rate": 1.0, "inner": {"epoch": 3}}, "file: unknown field 'epoch': did you mean 'epochs'?"),
        ({"rate": 1.0, "qqq": 3}, "file: unknown field 'qqq'"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_one_line(values, said):
    with pytest.raises(UserError) as refused:
        read_as(Outer, values, "file")
    assert str(refused.value) == said


def test_a_dataclass_built_in_python_is_held_to_its_types_too():
    with pytest.raises(UserError, match=r"rate = 'fast': expected float, got str"):
        Outer("fast")
