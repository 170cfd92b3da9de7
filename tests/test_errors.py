"""A mistake told in one line."""

import pytest

from stepnet.errors import UserError, unknown


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
    assert str(unknown("word", "?", [f"name{n:02}" for n in range(40)])).endswith("name10, name11")
