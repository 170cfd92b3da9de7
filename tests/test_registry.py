"""One registry for all that has a name."""

from functools import partial

import pytest

from stepnet import UserError, get_scheme, register_scheme
from stepnet.registry import Registry, build, option_names
from stepnet.schemes import Scheme


@pytest.fixture
def words() -> Registry[int]:
    registry: Registry[int] = Registry("word")
    registry.add("hello", 1, aliases=("hi", "good day"))
    registry.add("adieu", 2)
    return registry


def test_names_and_aliases_find_the_value(words: Registry[int]) -> None:
    assert words["hello"] == words["hi"] == words["good day"] == 1 and words["adieu"] == 2
    assert list(words) == words.names() == ["hello", "adieu"] and words.names("a*") == ["adieu"] and len(words) == 2
    assert words.canonical("hi") == "hello" and words.aliases_of("hello") == ["hi", "good day"]
    assert "hi" in words and "ciao" not in words and 3 not in words


def test_a_family_has_every_name_that_matches_and_lists_none(words: Registry[int]) -> None:
    words.add_family("hello2", r"hello(\d+)", lambda match: int(match[1]))
    words.add("hello7", 70)
    assert words["hello5"] == 5 and words["hello7"] == 70  # a registered name comes first
    assert words.names() == ["hello", "adieu", "hello7"]
    for strange in ("hello_2", "hello2x"):
        with pytest.raises(UserError, match="did you mean 'hello2'"):
            words[strange]


def test_a_name_that_is_not_there_names_the_nearest(words: Registry[int]) -> None:
    with pytest.raises(UserError, match=r"^unknown word 'helo': did you mean 'hello'\?$"):
        words["helo"]


@pytest.mark.parametrize("taken", [("hello", ()), ("hi", ()), ("new", ("adieu",))])
def test_a_name_is_taken_once_and_a_refusal_leaves_nothing(words: Registry[int], taken) -> None:
    with pytest.raises(UserError, match="registered already: choose another name"):
        words.add(taken[0], 3, aliases=taken[1])
    assert len(words) == 2 and "new" not in words


class Base:
    def __init__(self, size: int = 1, colour: str = "red") -> None:
        self.made = (size, colour)


class Derived(Base):
    def __init__(self, name: str = "", **options: object) -> None:
        super().__init__(**options)


def make(depth: int, **options: object) -> Derived:
    return Derived(**options)


def test_options_are_followed_to_the_class_that_takes_them() -> None:
    assert option_names(Derived) == ["name", "size", "colour"]
    assert option_names(partial(make, 3)) == ["name", "size", "colour"]
    assert option_names(object) == []


def test_a_wrong_option_names_the_nearest() -> None:
    assert build("thing", partial(make, 3), {"size": 2}).made == (2, "red")
    with pytest.raises(UserError, match=r"^thing takes no option 'color': did you mean 'colour'\?$"):
        build("thing", partial(make, 3), {"color": "blue"})
    with pytest.raises(UserError, match=r"^thing takes no option 'k': it takes name, size, colour$"):
        build("thing", Derived, {"k": 1})


@pytest.mark.usefixtures("registries")
def test_an_error_of_a_schemes_own_comes_out_as_it_is() -> None:
    @register_scheme("faulty")
    class Faulty(Scheme):
        def __init__(self, k: float = 0) -> None:
            super().__init__(k=k)  # Scheme takes none: a mistake of the class, not of who calls it

        def increment(self, past, dt, k):
            return 0

    with pytest.raises(TypeError) as error:
        get_scheme("faulty", k=1)
    assert error.traceback[-1].name == "__init__"
    with pytest.raises(UserError, match="scheme 'faulty' takes no option 'kk': did you mean 'k'"):
        get_scheme("faulty", kk=1)
