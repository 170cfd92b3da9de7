"""One object answers for a noise; what it prints is tested with the command."""

import sympy

from stepnet.analysis import analyse_noise, stochastic_equation, weak_condition


def test_every_p_or_one():
    every, one = analyse_noise("stochastic_depth"), analyse_noise("stochastic_depth", p=0.5)
    assert str(every.equation) == str(stochastic_equation("stochastic_depth"))
    assert not every.condition.holds and one.condition.holds
    assert str(every.condition) == str(weak_condition("stochastic_depth"))
    assert [noise.heading for noise in every.numbers] == ["stochastic_depth, p = 0.5", "stochastic_depth, p = 0.2"]
    assert one.numbers == [one.noise]
    assert [error.order - 1 for error in one.one_step_errors] == [1, 1, 1]


def test_a_noise_without_a_parameter_is_its_own_number():
    found = analyse_noise("shake_shake")
    assert found.numbers == [found.noise] and found.noise.heading == "shake_shake"
    assert analyse_noise("gaussian").numbers[0].heading == "gaussian, sigma = 0.5"


def test_a_slope_that_is_not_asymptotic_is_called_so():
    """At the paper's p = 0.8 the slopes of E X^3 are 1.16 and 0.38 where the order is 1/2."""
    found = analyse_noise("stochastic_depth", samples=2000, p=0.8)
    assert found.asymptotic_from(found.noise, 3, found.weak_orders[2]) == 2**15
    text = str(found)
    assert "0.376 *" in text and "1.156 *" in text
    assert "* not asymptotic: the order of E X^3 at p = 0.8 is 1/2;" in text
    assert "the exact slope is within 0.05 of it from 1/dt = 32768 on" in text


def test_lm_with_noise():
    text = str(analyse_noise("stochastic_depth", samples=2000, damping=0.7, p=0.5))
    assert "X_{n+1} = (2 - dt g) X_n - (1 - dt g) X_{n-1} + dt^2 gate f(X_n)" in text
    assert "dY = (1/2 f - 7/10 Y) dt + 1/2 f dB" in text and "*" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_survival_whose_formula_has_commas():
    found = analyse_noise("stochastic_depth", p=lambda t: sympy.Max(sympy.Rational(1, 5), 1 - t))
    first, second = found.damped_equation.lines
    assert first == "dX = Y dt" and second.startswith("dY = ") and "Max(1/5, 1 - t)" in second
    assert str(found.condition) == "fails: E dW^3 is of order 3/2"
