"""Schemes by name."""

import pytest

from stepnet import UserError, get_scheme, list_schemes, register_scheme
from stepnet.schemes import LM, RK4, Equation, Euler, LinearMultistep, Neumann, Scheme, aliases_of


def test_every_scheme_answers_to_its_name_and_aliases():
    for name in list_schemes():
        scheme = get_scheme(name)
        assert scheme.name == name
        assert scheme.reference
        for alias in aliases_of(name):
            assert type(get_scheme(alias)) is type(scheme) and get_scheme(alias).name == name


def test_the_schemes_of_the_paper_are_there():
    wanted = {"euler", "heun", "midpoint", "rk4", "neumann2", "neumann3", "picard2", "backward_euler", "fractal2"}
    assert wanted | {"lm", "leapfrog", "midpoint2", "ab2", "ab3", "coupled"} <= set(list_schemes())
    assert list_schemes("ab*") == ["ab2", "ab3"]


def test_a_family_goes_on_beyond_the_listed_members():
    assert get_scheme("neumann7").stages == 7
    assert get_scheme("fractal4").stages == 8


def test_a_scheme_is_passed_through_and_takes_no_second_k():
    scheme = get_scheme("lm", k=-0.5)
    assert get_scheme(scheme) is scheme
    with pytest.raises(UserError, match=r"lm\(k=-0.5\) is built already and does not take k=0.9"):
        get_scheme(scheme, k=0.9)


def test_a_scheme_that_is_built_directly_knows_its_name():
    assert str(LM(k=-0.5)) == "lm(k=-0.5)" and str(RK4()) == "rk4" and repr(Neumann(7)) == "neumann7"
    assert LinearMultistep((1, -1), (0, 1)).name == "LinearMultistep"  # that of its class, when nobody registered it
    assert type("Mine", (LM,), {})().name == "Mine"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("LM", "'lm'"), ("rk5", "'rk4'"), ("leap_frog", "'leapfrog'"), ("zzz", "known: "), ("eular", "'euler'")],
)
def test_an_unknown_scheme_names_the_nearest(name, hint):
    with pytest.raises(UserError, match=f"unknown scheme '{name}'") as error:
        get_scheme(name)
    assert hint in str(error.value) and "\n" not in str(error.value)


def test_a_parameter_that_a_scheme_lacks_is_refused():
    with pytest.raises(UserError, match="scheme 'rk4' takes no option 'k': it takes"):
        get_scheme("rk4", k=2)


@pytest.mark.parametrize("taken", ["lm", "poly-2"])
def test_a_name_is_taken_once(taken):
    with pytest.raises(UserError, match="registered already"):
        register_scheme(taken)(Scheme)


@pytest.mark.parametrize("name", ["neumann2000", "picard65", "fractal30", "full_fractal9", "fractal99999999999"])
def test_a_scheme_of_a_size_that_nobody_can_run_is_refused_at_once(name: str) -> None:
    with pytest.raises(UserError, match=r"expected (8|64) or less|unknown scheme"):
        get_scheme(name)


def test_a_scheme_is_a_name_or_a_scheme() -> None:
    with pytest.raises(UserError, match="expected a str or a Scheme"):
        get_scheme(["lm"])  # type: ignore[arg-type]


@pytest.mark.parametrize("equation", ["u' = f", property(lambda self: "u' = f")], ids=["attribute", "property"])
def test_an_equation_in_words_is_refused_in_one_line(registries: None, equation: object) -> None:
    mine = register_scheme("mine")(type("Mine", (Euler,), {"equation": equation}))
    for scheme in ("mine", mine()):
        with pytest.raises(UserError, match=r"""^equation = "u' = f" of scheme 'mine': expected an Equation .*$"""):
            get_scheme(scheme)


def test_an_equation_may_be_an_attribute(registries: None) -> None:
    mine = register_scheme("mine")(type("Mine", (Euler,), {"equation": Equation(mass=2)}))
    assert get_scheme("mine").equation == mine().equation == Equation(mass=2)
