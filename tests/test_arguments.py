"""Arguments against annotations."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack

import numpy as np
import pytest
import torch
from torch import nn

from stepnet.arguments import Count, Probability, checked, shown
from stepnet.errors import UserError

Module = TypeVar("Module", bound=nn.Module)


@pytest.mark.parametrize(
    ("hint", "right", "wrong"),
    [
        (int, [0, 10**20, np.int64(3)], [1.0, "1", None, True, np.float64(1), torch.tensor(1)]),
        (float, [0, 0.5, np.float32(1), Fraction(1, 3)], ["1", 1j, True, None, math.nan, math.inf, torch.tensor(1.0)]),
        (complex, [0, 0.5, 1j, np.complex64(1)], ["1", True, None]),
        (str, ["", "a"], [b"a", 1, ["a"]]),
        (bool, [True, False, np.True_], [0, 1, "yes"]),
        (int | None, [None, 1], ["1", 1.5]),
        (Literal["a", "b"], ["a"], ["c", True, 1.0]),
        (Sequence[float], [[1, 2.5], (1,), [], np.zeros(3), range(3)], ["12", [1, "2"], 3, b"12", np.zeros((2, 2))]),
        (tuple[float, float], [(0, 1)], [(0,), (0, 1, 2), [0, 1], ("a", 1)]),
        (tuple[str, ...], [(), ("a", "b")], [("a", 1), "ab"]),
        (dict[str, float], [{}, {"a": 1}], [{1: 1}, {"a": "b"}, []]),
        (Callable[[int], int], [len, lambda x: x], [None, 3, "f"]),
        (Module, [nn.Linear(1, 1)], [None, nn.Linear]),
        (str | Path, ["a", Path("a")], [3, b"a"]),
        (str | os.PathLike[str], ["a/b", Path("a"), "a/" * 200], [3, "n" * 300, Path("n" * 300), "zero\0byte"]),
        (np.ndarray, [np.zeros(3), np.array(2)], [np.array(["a"]), [1.0], np.array([object()])]),
        (Count, [1, np.int64(4)], [0, -1, True, 1.5, 10**30]),
        (Probability | None, [0, 1, 0.5, None], [-0.1, 1.1, "a", math.nan]),
        (Any, [None, 3, object()], []),
    ],
)
def test_a_value_fits_its_type(hint: Any, right: list[object], wrong: list[object]) -> None:
    @checked
    def take(value: hint) -> object:  # type: ignore[valid-type]
        return value

    assert all(take(value) is value for value in right)
    for value in wrong:
        with pytest.raises(UserError, match=r"^value.* = .*: expected .* in take\(…\)"):
            take(value)


@checked
def example(model: Module, steps: int, *names: str, scale: "float | None" = None, **options: object) -> Module:
    """A docstring."""
    return model


def test_a_wrong_argument_is_told_by_name_value_and_what_was_expected() -> None:
    network = nn.Linear(1, 1)
    assert example(network, 3, "a", "b", scale=2, other="anything") is network
    assert example.__doc__ == "A docstring." and example.__name__ == "example"
    for call, message in (
        (lambda: example(None, 3), r"model = None: expected a Module in example\(…\)"),  # type: ignore[type-var]
        (lambda: example(network, "3"), r"steps = '3': expected a whole number in example\(…\)"),  # type: ignore[arg-type]
        (lambda: example(network, 3, "a", 4), "names = 4: expected a str"),  # type: ignore[arg-type]
        (lambda: example(network, 3, scale="2"), r"scale = '2': expected a number in example"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UserError, match=message):
            call()
    with pytest.raises(TypeError, match="steps"):  # a call that Python itself refuses
        example(network)  # type: ignore[call-arg]


@checked
def choose(word: Literal["mean", "inverse"], points: Sequence[tuple[float, float]] = (), share: Probability = 0) -> str:
    return word


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"word": "men"}, "word = 'men': expected 'mean' or 'inverse' in choose(…); did you mean 'mean'?"),
        ({"word": "mean", "points": [(0, 1), (2, "a")]}, "points[1][1] = 'a': expected a number in choose(…)"),
        ({"word": "mean", "points": [(0, 1), (2,)]}, "points = [(0, 1), (2,)]: expected a longer tuple in choose(…)"),
        ({"word": "mean", "share": 2}, "share = 2: expected 1 or less in choose(…)"),
    ],
)
def test_the_line_names_the_place_and_the_nearest_word(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        choose(**arguments)
    assert str(refused.value) == message


def test_a_class_refuses_arguments_by_its_own_name() -> None:
    @checked
    @dataclass(frozen=True)
    class Point:
        x: float
        y: float = 0

    class Sub(Point):
        pass

    assert Point(1) == Point(x=1, y=0)
    for cls in (Point, Sub):
        with pytest.raises(UserError, match=rf"^y = 'a': expected a number in {cls.__name__}\(…\)$"):
            cls(1, "a")


class Options(TypedDict, total=False):
    k: float


def test_options_by_name_are_checked_too() -> None:
    @checked
    def build(name: str, **options: Unpack[Options]) -> object:
        return options

    assert build("a", k=1, other="left to the function") == {"k": 1, "other": "left to the function"}  # type: ignore[call-arg]
    with pytest.raises(UserError, match=r"^k = 'b': expected a number in build\(…\)$"):
        build("a", k="b")  # type: ignore[arg-type]


def test_errors_of_the_function_are_its_own() -> None:
    @checked
    def fails(n: int) -> int:
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        fails(3)


def test_a_value_is_shown_in_one_short_line() -> None:
    class Strange:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown(Strange()) == "a Strange"
    assert shown(np.zeros((100, 100))).endswith("(ndarray)") and "\n" not in shown(np.zeros((100, 100)))
