"""The first signal asks, its echo is nothing new, and a second one stops at once."""

import signal

import pytest

from stepnet.training import signals
from stepnet.training.signals import Interrupted, stop_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_asks_and_its_echo_is_the_same_question(number):
    before = signal.getsignal(number)
    with stop_signals() as asked:
        assert asked.number == 0
        asked.between_steps = True
        signal.raise_signal(number)
        signal.raise_signal(number)  # Ctrl-C reaches a rank from the terminal and from torchrun
        assert asked.number == number
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("number", "stops"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_second_signal_stops_at_once(monkeypatch, number, stops):
    monkeypatch.setattr(signals, "ECHO", -1.0)
    with pytest.raises(stops) as stopped, stop_signals() as asked:
        asked.between_steps = True
        signal.raise_signal(number)
        signal.raise_signal(number)
    assert number == signal.SIGINT or stopped.value.code == 143


def test_the_exit_code_is_that_of_the_signal():
    assert [Interrupted(number, "saved").exit_code for number in (signal.SIGINT, signal.SIGTERM)] == [130, 143]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_the_first_step_a_run_stops_at_once(number):
    with pytest.raises(Interrupted, match="before its first step") as stopped, stop_signals():
        signal.raise_signal(number)
        pytest.fail("it went on")
    assert stopped.value.exit_code == 128 + number
