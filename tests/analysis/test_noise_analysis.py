"""One object answers for a noise; what it prints is tested with the command."""

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
