"""Arguments against annotations."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack

import numpy as np
import pytest
from torch import nn

from stepnet.arguments import checked, fits, in_words, shown
from stepnet.errors import UserError

Module = TypeVar("Module", bound=nn.Module)


@pytest.mark.parametrize(
    ("hint", "right", "wrong"),
    [
        (int, [0, 10**20, np.int64(3)], [1.0, "1", None, True]),
        (float, [0, 0.5, np.float32(1)], ["1", 1j, True, None]),
        (str, ["", "a"], [b"a", 1, ["a"]]),
        (bool, [True, False], [0, 1, "yes"]),
        (int | None, [None, 1], ["1", 1.5]),
        (Literal["a", 1], ["a", 1], ["b", True, 1.0]),
        (Sequence[float], [[1, 2.5], (1,), []], ["12", [1, "2"], 3, b"12"]),
        (tuple[float, float], [(0, 1)], [(0,), (0, 1, 2), [0, 1], ("a", 1)]),
        (tuple[str, ...], [(), ("a", "b")], [("a", 1), "ab"]),
        (dict[str, float], [{}, {"a": 1}], [{1: 1}, {"a": "b"}, []]),
        (Callable[[int], int], [len, lambda x: x], [None, 3, "f"]),
        (Module, [nn.Linear(1, 1)], [None, nn.Linear]),
        (str | Path, ["a", Path("a")], [3, b"a"]),
        (str | os.PathLike[str], ["a/b", Path("a"), "a/" * 200], [3, "n" * 300, Path("n" * 300), "zero\0byte"]),
        (np.ndarray, [np.zeros(3), np.array(2)], [np.array(["a"]), [1.0], np.array([object()])]),
        (Any, [None, 3, object()], []),
    ],
)
def test_a_value_fits_its_type(hint: Any, right: list[object], wrong: list[object]) -> None:
    assert [fits(value, hint) for value in right] == [True] * len(right)
    assert [fits(value, hint) for value in wrong] == [False] * len(wrong)
    assert in_words(hint)


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
        (lambda: example(network, 3, scale="2"), r"scale = '2': expected a number or None"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UserError, match=message):
            call()
    with pytest.raises(TypeError, match="steps"):  # a call that Python itself refuses
        example(network)  # type: ignore[call-arg]


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
