"""Plain values are held to types; what does not fit is one line that names the place."""

import os
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from stepnet import UserError
from stepnet.schema import check_fields, read_as, read_yaml


@dataclass
class Inner:
    epochs: Annotated[int, Meta(ge=1)] = 1
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
        ({"rate": 1.0, "inner": {"epochs": 0}}, "file: inner.epochs = 0: expected int >= 1"),
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
