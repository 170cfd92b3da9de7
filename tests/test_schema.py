"""Plain values are held to types; what does not fit is one line that names the place."""

import os
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from annotated_types import Ge

from stepnet import UserError
from stepnet.schema import read_as, read_yaml


@dataclass
class Inner:
    epochs: Annotated[int, Ge(1)] = 1
    word: Literal["a", "b"] = "a"
    marks: tuple[int, ...] = ()


@dataclass
class Outer:
    rate: float
    inner: Inner = field(default_factory=Inner)

    def __post_init__(self):
        if self.rate < 0:
            raise UserError(f"rate = {self.rate}: expected a forward rate")


def test_values_become_the_dataclass_and_missing_ones_its_defaults():
    assert read_as(Outer, {"rate": 1, "inner": {"marks": [1, 2]}}, "x") == Outer(1.0, Inner(marks=(1, 2)))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "file: []: expected an object"),
        (None, "file: None: expected an object"),
        ({}, "file: rate is missing"),
        ({"rate": "fast"}, "file: rate = 'fast': expected a number"),
        ({"rate": -1.0}, "file: rate = -1.0: expected a forward rate"),
        ({"rate": 1.0, "inner": {"epochs": float("inf")}}, "file: inner.epochs = inf: expected a whole number"),
        ({"rate": 1.0, "inner": {"epochs": True}}, "file: inner.epochs = True: expected a whole number"),
        ({"rate": 1.0, "inner": {"epochs": 0}}, "file: inner.epochs = 0: expected 1 or more"),
        ({"rate": 1.0, "inner": {"word": "zzz"}}, "file: inner.word = 'zzz': expected 'a' or 'b'"),
        ({"rate": 1.0, "inner": {"marks": [1, "2"]}}, "file: inner.marks.1 = '2': expected a whole number"),
        ({"rate": 1.0, "inner": {"epoch": 3}}, "file: unknown field 'epoch': did you mean 'epochs'?"),
        ({"rate": 1.0, "qqq": 3}, "file: unknown field 'qqq'"),
        ({"rate": {1, 2}}, "file: Object of type set is not JSON serializable"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_one_line(values, said):
    with pytest.raises(UserError) as refused:
        read_as(Outer, values, "file", extra="forbid")
    assert str(refused.value) == said


def test_other_fields_are_passed_over_unless_they_are_forbidden():
    assert read_as(Outer, {"rate": 1, "qqq": 3}, "x") == Outer(1.0)


@pytest.mark.parametrize(
    "content",
    [
        b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",  # goes on like this in a file that never ends
        b"a: !!python/object/apply:os.system ['touch it-ran']",
        b"[" * 100_000,
        b"\xff\xfe\xff",
        b"a: [1, 2",
        b"a: " + b"9" * 10_000,
    ],
    ids=["aliases", "code", "nesting", "bytes", "cut", "digits"],
)
def test_yaml_that_is_no_plain_text_is_one_line(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(UserError, match=r"^config: none ") as refused:
        read_yaml(tmp_path / "config.yaml", "config: none")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "it-ran").exists()


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "config.yaml")
    with pytest.raises(UserError, match="is not a regular file"):
        read_yaml(tmp_path / "config.yaml", "config: none")
