"""A mistake told in one line."""

import numpy as np
import pytest

from stepnet.errors import UserError, first_line, unknown


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("helo", "unknown word 'helo': did you mean 'hello' or 'Help'?"),
        ("HELLO", "unknown word 'HELLO': did you mean 'hello' or 'Help'?"),
        ("help", "unknown word 'help': did you mean 'Help' or 'hello'?"),
        ("zzz", "unknown word 'zzz': known: Help, hello, other"),
        (None, "unknown word None: known: Help, hello, other"),
    ],
)
def test_an_unknown_name_comes_with_the_nearest(name, told):
    error = unknown("word", name, ["other", "hello", "Help"])
    assert isinstance(error, UserError) and str(error) == told


def test_of_many_known_names_a_dozen_are_told():
    assert str(unknown("word", "?", [f"name{n:02}" for n in range(40)])).endswith("name10, name11 and 28 more")


@pytest.mark.parametrize(
    ("message", "told"),
    [("one\ntwo", "one"), ("\n  \nthree", "three"), ("", "KeyboardInterrupt"), (" ", "KeyboardInterrupt")],
)
def test_the_first_line_of_an_exception(message, told):
    assert first_line(KeyboardInterrupt(message)) == told


def test_a_message_is_one_line_whatever_it_holds():
    assert str(UserError(f"u0 = {np.zeros((2, 2))}")) == "u0 = [[0. 0.] [0. 0.]]"
    assert str(UserError("k = a\0b\udcff\x1b[31m")) == r"k = a\x00b\udcff\x1b[31m"
    assert len(str(UserError("x" * 10_000))) < 1000
